"""How uv and pip are configured on this machine, and the part of it that image builds get and images must not keep.

A build gets everything as secrets, which only the steps that ask for them see, in /run/secrets, and which are in no
layer. Proxies are build arguments too, for steps that install Debian's packages: Docker keeps those that it predefines
out of the image's configuration and history.
"""

import configparser
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["BuildSettings", "collect", "for_install", "for_pip", "for_uv", "pip_options"]

_CERTIFICATES_INSIDE = "/run/secrets/ca.pem"
_REMOTE = re.compile(r"(?:[\w.-]+=)?(https?://.+)")
ANY_INDEX = ("UV_INDEX_STRATEGY", "unsafe-best-match")
"""Any index may serve a package, as with pip. The lock's hashes decide what is accepted."""
_INSTALLS = re.compile(
    r"PATH|HOME|USER|TMPDIR|LANG|LC_\w+|XDG_\w+|NETRC|NO_COLOR|SSL_CERT_(?:FILE|DIR)|(?i:(?:https?|ftp|all|no)_proxy)|"
    r"UV_(?:(?:DEFAULT_)?INDEX(?:_\w+)?|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|OFFLINE|NO_CONFIG|CONFIG_FILE|INSECURE_HOST|"
    r"HTTP_\w+|REQUEST_TIMEOUT|NATIVE_TLS|SYSTEM_CERTS|KEYRING_PROVIDER|PYTHON\w*|CONCURRENT_\w+|NO_PROGRESS|TORCH_BACKEND|CACHE_DIR)"
)
"""What uv needs of the environment to reach an index and find a Python. The rest, tokens among it, is nothing to it."""
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")


class _Setting(NamedTuple):
    """One setting of the package index, under every name it goes by."""

    uv: str
    """The variable that uv reads, and that is set for it."""
    pip: str
    """The same for pip."""
    others: tuple[str, ...] = ()
    """Older variables of uv."""
    options: tuple[str, ...] = ()
    """Options of pip's configuration files."""
    separator: str = " "
    """Between several values, as uv wants it. For pip it is always a space."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Where a value is looked for; the first match wins."""
        return (self.uv, *self.others, self.pip, *self.options)


_INDEXES = (
    _Setting("UV_DEFAULT_INDEX", "PIP_INDEX_URL", ("UV_INDEX_URL",), ("index-url",)),
    _Setting("UV_INDEX", "PIP_EXTRA_INDEX_URL", ("UV_EXTRA_INDEX_URL",), ("extra-index-url",)),
    _Setting("UV_FIND_LINKS", "PIP_FIND_LINKS", (), ("find-links",), separator=","),
)
"""Settings whose values are addresses, or paths of this machine."""
_HOW_TO_REACH = (
    _Setting("UV_INSECURE_HOST", "PIP_TRUSTED_HOST", (), ("trusted-host",)),
    _Setting("UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", (), ("timeout", "default-timeout")),
)
_CERTIFICATES = _Setting("SSL_CERT_FILE", "PIP_CERT", ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), ("cert",))


def for_uv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv: `environ`, with what is configured for pip alone set for uv too."""
    result = dict(environ)
    configured = pip_options(pip_files(environ)) | dict(environ)
    for setting in (*_INDEXES, *_HOW_TO_REACH, _CERTIFICATES):
        value = next((configured[name] for name in setting.sources[1:] if configured.get(name)), None)
        if value and not result.get(setting.uv):
            result[setting.uv] = setting.separator.join(value.split())
    if "UV_INDEX" in result:
        result.setdefault(*ANY_INDEX)
    return result | {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def for_install(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv installs or resolves: `for_uv` without whatever else the caller has set."""
    return {name: value for name, value in for_uv(environ).items() if _INSTALLS.fullmatch(name)}


def for_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for pip, which reads its own files: what is configured for uv alone is set for pip too."""
    result = dict(environ)
    for setting in (*_INDEXES[:2], _CERTIFICATES):
        value = next((environ[name] for name in (setting.uv, *setting.others) if environ.get(name)), None)
        if value:
            result.setdefault(setting.pip, value)
    return result


@dataclass(frozen=True)
class BuildSettings:
    """What a build gets of this machine's settings."""

    script: str = field(repr=False)  # exports for the shell of steps that download packages; may hold credentials
    certificates: Path | None = None  # the bundle that `script` names as /run/secrets/ca.pem
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)  # Docker's predefined build arguments


def collect(environ: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> BuildSettings:
    """Collect the settings from the environment `environ` and from pip's `options` (see `pip_options`)."""
    variables = os.environ if environ is None else environ
    configured = pip_options(pip_files(variables)) if options is None else options
    certificates = _ca_bundle(variables, configured)
    proxies = _proxies(variables, configured)
    exports = {**_index(variables, configured), **proxies}
    if certificates:
        exports |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"), _CERTIFICATES_INSIDE)
    script = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(exports.items()))
    return BuildSettings(script, certificates, proxies)


def _ca_bundle(variables: Mapping[str, str], options: Mapping[str, str]) -> Path | None:
    """Return the first bundle that exists, last the system's own: an organisation's CA may have been added to it."""
    import ssl  # noqa: PLC0415 slow to import; most runs build nothing

    values = {**options, **variables}
    candidates = [*map(values.get, _CERTIFICATES.sources), ssl.get_default_verify_paths().cafile]
    return next((path for path in map(Path, filter(None, candidates)) if path.is_file()), None)


def _proxies(variables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables in both spellings, as programs differ in which one they read."""
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), options["proxy"]) if options.get("proxy") else {}
    for name in _PROXY_VARIABLES:
        value = variables.get(name.lower()) or variables.get(name)
        if value:
            found[name] = value
    return found | {name.lower(): value for name, value in found.items()}


def _index(variables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    exports: dict[str, str] = {}
    values = {**options, **variables}
    for setting in (*_INDEXES, *_HOW_TO_REACH):
        usable = _remote if setting in _INDEXES else list[str]
        words = (usable(values.get(name, "").split()) for name in setting.sources)
        value = " ".join(next(filter(None, words), []))
        if value:
            exports |= {setting.uv: value, setting.pip: value}
    if "UV_INDEX" in exports:
        exports |= [ANY_INDEX]
    return exports


def _remote(words: Iterable[str]) -> list[str]:
    """Return the addresses without uv's names for them. Paths are left out: they do not exist in a build."""
    return [match[1] for match in map(_REMOTE.fullmatch, words) if match]


def pip_options(files: Iterable[Path]) -> dict[str, str]:
    """Return the options of pip's configuration files; later files win. Unreadable ones are skipped."""
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
    """Return pip's configuration files in the order in which pip reads them."""
    home = Path.home()
    own = variables.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    shared = [Path(directory) for directory in variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    own_directory = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    files = [directory / "pip" / "pip.conf" for directory in (*shared, own_directory)]
    files[-1:-1] = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    return [*files, *([Path(own)] if own else [])]
