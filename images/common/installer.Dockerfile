# uv, which installs everything else. Environments are built with it and don't contain it.
ARG SYSTEM
FROM ${SYSTEM} AS fetch
ARG BUILD
LABEL casebook.build=${BUILD}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv \
 && python3 -m venv /opt/fetch
COPY settings /settings
COPY common/uv.txt /opt/
RUN . /settings/env && /opt/fetch/bin/pip install --quiet --no-cache-dir --only-binary :all: --require-hashes -r /opt/uv.txt

FROM ${SYSTEM}
LABEL casebook.part=installer
COPY --from=fetch /opt/fetch/bin/uv /usr/local/bin/uv
