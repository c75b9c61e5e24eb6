# Wheels of somebody's own over a locked environment. What they depend on stays as it is locked: nothing is downloaded.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=override
USER 0:0
RUN --mount=type=bind,from=uv,source=/usr/local/bin,target=/usr/local/bin --mount=type=bind,target=/mnt \
    uv pip install --offline --no-index --no-cache --no-deps --compile-bytecode --python /opt/env /mnt/wheels/*.whl
USER 1000:1000
