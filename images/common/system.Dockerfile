# What all images share: Debian's Python 3.11, a C and C++ compiler (Triton compiles its launchers at run time and
# torch.compile its CPU kernels, both against Python.h; it hashes their headers with openssl), ninja for torch's extensions,
# and the user that trials run as.
ARG BASE
FROM ${BASE}
LABEL casebook.part=system
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        g++ gcc libc6-dev ninja-build openssl python3 python3-dev python3-distutils \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
RUN useradd --uid 1000 --user-group --create-home --shell /bin/bash case
