"""Remove private data from text: home paths, user and host names, tokens, addresses. Pure.

What is known to be private on this machine is given as `Private`; the rest is recognized by its form. In doubt
something is removed: a report loses little by it.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TOKEN = "[token removed]"  # noqa: S105 it replaces a token
HOME = "~"
_SHORTEST_NAME = 3
_COMMON = {
    *("root", "user", "users", "case", "home", "nobody", "admin", "ubuntu", "debian", "runner", "jovyan", "shared"),
    *("localhost", "docker", "build", "test", "tests", "python", "torch", "cuda", "data", "work", "tmp", "github"),
}
"""Names that identify nobody, and words that a text needs."""


@dataclass(frozen=True)
class Private:
    """What is known to be private on this machine."""

    places: Mapping[str, str] = field(default_factory=dict)  # path -> what to write in its place
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


class Redacted(NamedTuple):
    text: str
    counts: Counter[str]  # how many of each kind were removed, such as {"token": 1, "home path": 2}


_STRONG = r"secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
_WHOSE = r"hf|hub|huggingface|auth|access|api|bearer|github|gh|gitlab|refresh|session|wandb|deploy|private"
"""Words before "token" that make it a secret. Those of language models (bos_token, pad_token) are none."""
_TOKENS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}",
    r"\bgh[a-z]_[A-Za-z0-9_]{16,}",
    r"\bgithub_pat_[A-Za-z0-9_]{16,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\b(?:npm|pypi|dop_v1|nvapi|wandb)[_-][A-Za-z0-9_-]{20,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
)
_TOKEN = re.compile("|".join(_TOKENS), re.DOTALL)
_BEARER = re.compile(r"(?i)\b(bearer|basic|token)(\s+)(?=[A-Za-z0-9._~+/-]*[0-9])[A-Za-z0-9._~+/-]{12,}=*")
_ASSIGNED = re.compile(
    rf"""(?P<name>["']?(?<![\w.-])[\w.-]{{0,40}}?(?:(?P<strong>{_STRONG}|(?:{_WHOSE})[_-]?token)|token)["']?)"""
    r"""(?P<is>[ \t]{0,9}(?:=>?|:)[ \t]{0,9})(?P<value>"[^"\n]+"|'[^'\n]+'|[^\s"',;&()\[\]]{6,}(?![^\s"',;&)\]]))""",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r"[\d.]+|None|null|true|false|\{.*|\$.*|os\..*|\[.*", re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"(?P<scheme>(?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]{0,20}://)[^\s/@:'\"<>]{0,200}(?::[^\s@'\"<>]{0,400})?@"
)
_HOME = re.compile(
    r"(?<![\w.-])(?P<home>/(?:home|Users|users|u|export/home|data/home|mnt/home)/(?P<user>[^\s/:'\"<>,;()\[\]]+)|/root(?![\w.-]))"
)
_WINDOWS_HOME = re.compile(r"(?i)\b[a-z]:[\\/]+users[\\/]+(?P<user>[^\s\\/:'\"<>]+)")
_PROMPT = re.compile(
    r"(?<![\w-])(?P<user>[a-z_][a-z0-9_-]{0,31})@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?=:[~/]|\s+~|\s*[$#]\s)"
)
_EMAIL = re.compile(
    r"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}@(?P<domain>[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,6}\.(?P<top>[A-Za-z]{2,24}))(?![\w(\[])"
)
_TOPS = {
    *("com", "org", "net", "edu", "gov", "mil", "int", "info"),
    *("dev", "app", "xyz", "local", "cloud", "tech", "email"),
}
"""Top-level domains of email addresses, besides those of countries."""
_INTERNAL = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|intranet|localdomain|home\.arpa)\b(?!\()"
)
_IPV4 = re.compile(r"(?<![\w.=-])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.-]*\w)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_VERSION_BEFORE = re.compile(r"(?i)(?:version:?|release|v|cudnn|==|[<>~!]=|nccl)[ \t]*[^\w\s]?[ \t]*$")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_DEVICE = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HOST_VARIABLE = re.compile(
    r"\b(?P<name>HOSTNAME|MASTER_ADDR|SLURM_\w*NODE\w*|SLURMD_NODENAME)=(?P<value>(?!\[)[^\s'\"]+)"
)
_USER_VARIABLE = re.compile(r"\b(?P<name>USER|LOGNAME|USERNAME|SLURM_JOB_USER)=(?P<value>(?!\[)[^\s'\"]+)")


def redact(text: str, private: Private = Private()) -> Redacted:
    """Return the text with everything private replaced by words that say what it was."""
    counts: Counter[str] = Counter()
    users = {*private.users, *_users(text)}
    hosts = {*private.hosts, *(match["value"] for match in _HOST_VARIABLE.finditer(text))}
    for place, word in sorted(private.places.items(), key=lambda each: -len(each[0])):
        if len(place) > 1:
            pattern = re.compile(rf"(?<![\w.-]){re.escape(place)}(?![\w-])")
            text = _replaced(pattern, _constant(word), text, counts, "private path")
    for kind, pattern, write in _RULES:
        text = _replaced(pattern, write, text, counts, kind)
    for kind, names in (("user name", users), ("host name", hosts)):
        for name in sorted(names, key=len, reverse=True):
            if len(name) >= _SHORTEST_NAME and name.lower() not in _COMMON:
                pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE)
                text = _replaced(pattern, _constant(f"[{kind}]"), text, counts, kind)
    return Redacted(text, counts)


def _constant(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def redacted(value: Any, private: Private, counts: Counter[str]) -> Any:
    """Return plain data with every text in it redacted, keys too. Adds to `counts`."""
    match value:
        case str():
            done = redact(value, private)
            counts.update(done.counts)
            return done.text
        case list():
            return [redacted(each, private, counts) for each in value]
        case dict():
            return {redacted(key, private, counts): redacted(each, private, counts) for key, each in value.items()}
        case _:
            return value


def _users(text: str) -> Iterator[str]:
    """Users named by a home directory, a shell's prompt or a variable. Their names are removed everywhere."""
    for pattern in (_HOME, _WINDOWS_HOME, _PROMPT):
        yield from (match["user"] for match in pattern.finditer(text) if match["user"])
    yield from (match["value"] for match in _USER_VARIABLE.finditer(text))


def _replaced(
    pattern: re.Pattern[str], write: Callable[[re.Match[str]], str], text: str, counts: Counter[str], kind: str
) -> str:
    def replace(match: re.Match[str]) -> str:
        written = write(match)
        if written != match[0]:
            counts[kind] += 1
        return written

    return pattern.sub(replace, text)


def _assigned(match: re.Match[str]) -> str:
    quote = match["value"][0] if match["value"][0] in "\"'" else ""
    value = match["value"].strip("\"'")
    if _NO_SECRET.fullmatch(value) or not _is_secret(match, value, quoted=bool(quote)):
        return match[0]
    return f"{match['name']}{match['is']}{quote}{TOKEN}{quote}"


def _is_secret(match: re.Match[str], value: str, *, quoted: bool) -> bool:
    """In code an unquoted word after " = " is a name; a token of an unknown kind is a secret if it looks random."""
    if not match["strong"]:
        return bool(re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=.~-]{12,}", value.strip("<>")))
    return quoted or not match["is"].startswith((" ", "\t")) or bool(re.search(r"\d", value))


def _email(match: re.Match[str]) -> str:
    """In a script, x@w.mT is a product of matrices."""
    top = match["top"]
    known = top.lower() in _TOPS or (len(top) == 2 and top not in {"mT", "mH"})
    return "[email removed]" if known else match[0]


def _ipv4(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 24) : match.start()]
    try:
        address = ipaddress.IPv4Address(match[0])
    except ValueError:
        return match[0]
    if address.is_loopback or address.is_unspecified or _VERSION_BEFORE.search(before):
        return match[0]
    return "[address removed]"


def _ipv6(match: re.Match[str]) -> str:
    try:
        address = ipaddress.IPv6Address(match[0])
    except ValueError:
        return match[0]
    few = len([group for group in match[0].split(":") if group]) < 3
    return match[0] if address.is_loopback or address.is_unspecified or few else "[address removed]"


_RULES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    ("token", _TOKEN, lambda _: TOKEN),
    ("token", _BEARER, lambda found: f"{found[1]}{found[2]}{TOKEN}"),
    ("credentials", _CREDENTIALS, lambda found: found["scheme"]),
    ("token", _ASSIGNED, _assigned),
    ("home path", _HOME, lambda _: HOME),
    ("home path", _WINDOWS_HOME, lambda _: HOME),
    ("user and host name", _PROMPT, lambda _: "[user]@[host]"),
    ("email", _EMAIL, _email),
    ("user name", _USER_VARIABLE, lambda found: f"{found['name']}=[user name]"),
    ("host name", _HOST_VARIABLE, lambda found: f"{found['name']}=[host name]"),
    ("host name", _INTERNAL, lambda _: "[host name]"),
    ("device id", _DEVICE, lambda found: f"{found[0][:3]}-[id removed]"),
    ("address", _MAC, lambda _: "[address removed]"),
    ("address", _IPV6, _ipv6),
    ("address", _IPV4, _ipv4),
)
