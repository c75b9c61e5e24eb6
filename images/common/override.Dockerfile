# Wheels of somebody's own over a locked environment. What they depend on stays as it is locked: nothing is downloaded.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=override
USER 0:0
COPY --from=uv /usr/local/bin/uv /usr/local/bin/uv
COPY wheels /wheels
RUN uv pip install --offline --no-index --no-cache --no-deps --compile-bytecode --python /opt/env /wheels/*.whl \
 && rm -r /usr/local/bin/uv /wheels
USER 1000:1000
