"""What an image build needs of this machine and the image must not keep: package index, proxies, CA certificates.

Everything goes into the build as files of its context, in the directory `settings`, which the Dockerfiles in images/
copy into stages that are thrown away. Proxies go as build arguments too, for steps that install Debian's packages:
those that Docker predefines are kept out of the image's configuration and history.
"""

import configparser
import os
import re
import shlex
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["DIRECTORY", "BuildSettings", "collect", "pip_files", "pip_options"]

DIRECTORY = "settings"
_CA_FILE = "ca.pem"
_REMOTE = re.compile(r"(?:[\w.-]+=)?(https?://.+)")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")

_INDEX = {
    "default_index": ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "index-url"),
    "extra_indexes": ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL", "extra-index-url"),
    "find_links": ("UV_FIND_LINKS", "PIP_FIND_LINKS", "find-links"),
    "insecure_hosts": ("UV_INSECURE_HOST", "PIP_TRUSTED_HOST", "trusted-host"),
    "timeout": ("UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "timeout", "default-timeout"),
}
"""Where each setting is looked for, first match wins: variables of uv and pip, then options of pip's files."""

_WRITTEN_AS = {
    "default_index": ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
    "extra_indexes": ("UV_INDEX", "PIP_EXTRA_INDEX_URL"),
    "find_links": ("UV_FIND_LINKS", "PIP_FIND_LINKS"),
    "insecure_hosts": ("UV_INSECURE_HOST", "PIP_TRUSTED_HOST"),
    "timeout": ("UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"),
}


_MIRROR = """\
reach='import urllib.request as r; r.build_opener(r.ProxyHandler({})).open("@MIRROR@/", timeout=5)'
if python3 -c "$reach" 2>/dev/null; then
    export UV_DEFAULT_INDEX=@MIRROR@/simple/ PIP_INDEX_URL=@MIRROR@/simple/
    export NO_PROXY="127.0.0.1${NO_PROXY:+,$NO_PROXY}" no_proxy="127.0.0.1${no_proxy:+,$no_proxy}"
fi
"""


@dataclass(frozen=True)
class BuildSettings:
    """`files` are paths in the build context with their contents; `proxies` are Docker's predefined build arguments.

    `variables` are what steps of a build get in their environment.
    """

    files: Mapping[str, bytes] = field(repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def certificates(self) -> bytes | None:
        return self.files.get(f"{DIRECTORY}/{_CA_FILE}")

    def with_mirror(self, url: str) -> "BuildSettings":
        """With a mirror of the index, for steps that reach it; others ask the index itself."""
        env = f"{DIRECTORY}/env"
        return replace(self, files={**self.files, env: self.files[env] + _MIRROR.replace("@MIRROR@", url).encode()})


def collect(environ: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> BuildSettings:
    """Settings of this process: `environ` is its environment, `options` are pip's own (see `pip_options`)."""
    variables = os.environ if environ is None else environ
    configured = pip_options(pip_files(variables)) if options is None else options
    certificates = _ca_bundle(variables, configured)
    proxies = _proxies(variables, configured)
    exports = {**_index(variables, configured), **proxies}
    files = {}
    if certificates:
        inside = f"/{DIRECTORY}/{_CA_FILE}"
        exports |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"), inside)
        files[f"{DIRECTORY}/{_CA_FILE}"] = certificates.read_bytes()
    files[f"{DIRECTORY}/env"] = _shell(exports)
    return BuildSettings(files=files, proxies=proxies, variables=exports)


def _shell(exports: Mapping[str, str]) -> bytes:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(exports.items())).encode()


def _ca_bundle(variables: Mapping[str, str], options: Mapping[str, str]) -> Path | None:
    """The first that exists; this machine's own bundle last, as an organisation's CA may have been added to it."""
    named = [variables.get(name) for name in _CA_VARIABLES]
    candidates = [*named, options.get("cert"), ssl.get_default_verify_paths().cafile]
    return next((path for path in map(Path, filter(None, candidates)) if path.is_file()), None)


def _proxies(variables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """In both spellings, as programs differ in which one they read."""
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), options["proxy"]) if options.get("proxy") else {}
    for name in _PROXY_VARIABLES:
        value = variables.get(name.lower()) or variables.get(name)
        if value:
            found[name] = value
    return found | {name.lower(): value for name, value in found.items()}


def _index(variables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    exports: dict[str, str] = {}
    values = {**options, **variables}
    for setting, sources in _INDEX.items():
        value = next(_usable(setting, sources, values), "")
        if value:
            exports |= dict.fromkeys(_WRITTEN_AS[setting], value)
    if "UV_INDEX" in exports:
        # As pip does it: any index may serve a package. The lock's hashes decide what is accepted.
        exports["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return exports


def _usable(setting: str, sources: Iterable[str], values: Mapping[str, str]) -> Iterator[str]:
    for name in sources:
        words = values.get(name, "").split()
        if setting in {"default_index", "extra_indexes", "find_links"}:
            # uv may have given an index a name; a path of this machine does not exist in a build.
            words = [match[1] for match in map(_REMOTE.fullmatch, words) if match]
        if words:
            yield " ".join(words)


def pip_options(files: Iterable[Path]) -> dict[str, str]:
    """Options of pip's configuration files, a later file's over an earlier one's. Unreadable ones are passed over."""
    options: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                options |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    return options


def pip_files(variables: Mapping[str, str]) -> list[Path]:
    """Where pip looks, in the order in which it reads."""
    home = Path.home()
    own = variables.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    shared = [Path(directory) for directory in variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    own_directory = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    files = [directory / "pip" / "pip.conf" for directory in (*shared, own_directory)]
    files[-1:-1] = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    return [*files, *([Path(own)] if own else [])]
