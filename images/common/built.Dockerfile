# Builds the packages that have no wheel, by what the lock has. Their code runs here, as it is built: so there are no
# settings of the machine that builds, no cache of other builds, and no network.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=built
RUN --mount=type=bind,from=uv,source=/usr/local/bin,target=/usr/local/bin --mount=type=bind,target=/mnt \
    --mount=type=tmpfs,target=/run \
    uv pip install --offline --no-index --no-cache --find-links /opt/sources --no-build-isolation --no-deps \
    --require-hashes --compile-bytecode --python /opt/env -r /mnt/lock.txt \
 && rm -r /opt/sources
