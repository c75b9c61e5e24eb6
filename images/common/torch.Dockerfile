# An environment's first part: torch, Triton and NVIDIA's libraries, if the lock has them. They take gigabytes, and many
# locks have the same ones: the images of those locks share this layer. The context is mounted to /mnt, and uv's cache,
# which all builds of the engine share, to /srv: directories that Debian has anyway, so that no layer gets more of them.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=torch
RUN --mount=type=bind,from=uv,source=/usr/local/bin,target=/usr/local/bin \
    --mount=type=bind,target=/mnt \
    --mount=type=cache,id=casebook-uv,target=/srv \
    --mount=type=tmpfs,target=/run --mount=type=secret,id=settings --mount=type=secret,id=ca.pem \
    . /run/secrets/settings && export UV_CACHE_DIR=/srv UV_LINK_MODE=copy \
 && uv venv --quiet --no-python-downloads --python /usr/bin/python3 /opt/env \
 && uv pip install --only-binary :all: --no-deps --require-hashes --compile-bytecode --python /opt/env -r /mnt/lock.txt
