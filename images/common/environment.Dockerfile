# One locked environment on one of the images. The settings of the machine that builds (package index, proxy,
# certificates) are in the first stage only; of that stage /opt/env alone goes into the result.
ARG IMAGE
ARG INSTALLER
FROM ${INSTALLER} AS uv

FROM ${IMAGE} AS install
ARG BUILD
LABEL casebook.build=${BUILD}
COPY --from=uv /usr/local/bin/uv /usr/local/bin/uv
COPY settings /settings
COPY lock.txt /
RUN . /settings/env \
 && uv venv --quiet --no-python-downloads --python /usr/bin/python3 /opt/env \
 && uv pip install --no-cache --require-hashes --strict --compile-bytecode --python /opt/env -r /lock.txt

FROM ${IMAGE}
LABEL casebook.part=environment
COPY --from=install /opt/env /opt/env
ENV PATH=/opt/env/bin:${PATH} VIRTUAL_ENV=/opt/env
USER 1000:1000
