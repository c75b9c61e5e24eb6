# As environment.Dockerfile, where the case names the files that it needs of some packages: every other file of theirs is
# removed in the same step, so that no layer has it. uv has compared the whole wheels with the lock's hashes before.
# The settings of the machine that builds (package index, proxy, certificates) are secrets: no layer has them.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE}
LABEL casebook.part=environment
RUN --mount=type=bind,from=uv,source=/usr/local/bin,target=/usr/local/bin \
    --mount=type=bind,target=/mnt \
    --mount=type=cache,id=casebook-uv,target=/srv \
    --mount=type=tmpfs,target=/run --mount=type=secret,id=settings --mount=type=secret,id=ca.pem \
    . /run/secrets/settings && export UV_CACHE_DIR=/srv UV_LINK_MODE=copy \
 && uv pip install --only-binary :all: --require-hashes --strict --compile-bytecode --python /opt/env -r /mnt/lock.txt \
 && site=$(/opt/env/bin/python -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && /opt/env/bin/python -I -S /mnt/only.py "$site" "$(cat /mnt/packages.txt)" "$(cat /mnt/only.txt)"
ENV PATH=/opt/env/bin:${PATH} VIRTUAL_ENV=/opt/env
USER 1000:1000
