# Where a lock names packages that have no wheel: all its other packages, and the sources of these. Nothing of them runs.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=sources
RUN --mount=type=bind,from=uv,source=/usr/local/bin,target=/usr/local/bin \
    --mount=type=bind,target=/mnt \
    --mount=type=cache,id=casebook-uv,target=/srv \
    --mount=type=tmpfs,target=/run --mount=type=secret,id=settings --mount=type=secret,id=ca.pem \
    . /run/secrets/settings && export UV_CACHE_DIR=/srv UV_LINK_MODE=copy \
 && uv pip install --only-binary :all: --no-deps --require-hashes --compile-bytecode --python /opt/env -r /mnt/lock.txt \
 && uv pip compile --quiet --no-binary :all: --no-deps --format pylock.toml --python /opt/env /mnt/sources.txt \
    | /usr/bin/python3 /mnt/common/sources.py /opt/sources
