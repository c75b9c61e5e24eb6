# uv, which installs everything else. Environments are built with it and don't contain it.
ARG SYSTEM
FROM ${SYSTEM}
LABEL casebook.part=installer
RUN --mount=type=bind,target=/mnt \
    --mount=type=tmpfs,target=/run --mount=type=secret,id=settings --mount=type=secret,id=ca.pem \
    apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv \
 && python3 -m venv /opt/fetch \
 && . /run/secrets/settings \
 && /opt/fetch/bin/pip install --quiet --no-cache-dir --only-binary :all: --require-hashes -r /mnt/common/uv.txt \
 && mv /opt/fetch/bin/uv /usr/local/bin/uv \
 && rm -rf /opt/fetch /var/lib/apt/lists/* /var/cache/apt/*
