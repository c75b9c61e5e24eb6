"""The files of a new case as text, with marked blanks for what only its author knows. Pure."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_casebook.author.check import MARK
from gpu_casebook.errors import UsageError
from gpu_casebook.kinds import Failure, Variant
from gpu_casebook.trial import PYTHON

SECTIONS: Mapping[str, str] = {
    "What users saw": "the symptom in their words: what they ran, the message or numbers, since when",
    "Why": "the mechanism, from cause to symptom, so that somebody who does not know the code can follow",
    "The fix": "what changes between repro.py and fixed.py, and why that is right",
    "The scripts": "what they do and print, what they need, how they differ from the code upstream",
    "History": "dates with links: reported, introduced, fixed, released",
    "What is established, and what is inferred": "what was run, where, with which numbers; and what is only thought",
    "Is your failure this one?": "how a reader tells it from look-alikes",
}
"""The sections of a case's README, and what each has to say."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}"
_URL = re.compile(
    rf"(?:https?://)?(?:www\.)?github\.com/(?P<project>{_NAME})/(?P<kind>issues|pull|discussions)/(?P<number>[1-9][0-9]*)"
    r"(?:/[a-z]+)?/?(?:\?[^\s#]*)?(?:#\S*)?",
    re.IGNORECASE,
)
_SHORT = re.compile(rf"(?P<project>{_NAME})#(?P<number>[1-9][0-9]*)")
_FORMS = "https://github.com/OWNER/NAME/issues/NUMBER (or pull/NUMBER, discussions/NUMBER), or OWNER/NAME#NUMBER"

_HEADER = re.compile(r"(?m)^# /// script$\s(?:^#(?:| .*)$\s)+?^# ///$\n?")
_FIRST_LINES = re.compile(r"\A(?:#!.*\n)?(?:#.*coding[:=].*\n)?")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+=-]*(?: [A-Za-z0-9_./+=-]+)*")
_CONFIRM = f"{MARK}: confirm"
_NO_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def blank(what: str) -> str:
    return f"{MARK}: {what}"


class Report(NamedTuple):
    """Where a failure was reported: "owner/name", "issues", "pull" or "discussions", and the number."""

    project: str
    kind: str
    number: int

    @property
    def url(self) -> str:
        return f"https://github.com/{self.project}/{self.kind}/{self.number}"


def parse_report(text: str) -> Report:
    """The report that a link leads to. Raises UsageError for anything but a report on GitHub."""
    match = _URL.fullmatch(text.strip()) or _SHORT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--issue {text}: not a report on GitHub; write {_FORMS}, or leave it out")
    return Report(match["project"], match.groupdict().get("kind", "issues").lower(), int(match["number"]))


@dataclass(frozen=True)
class Proposal:
    """What to write under `expect`, as one trial suggests; empty where it suggests nothing."""

    failure: Failure | None = None
    repro: Mapping[str, Any] = field(default_factory=dict)  # by key: a text, or bounds by figure
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: str = ""  # how the trial ended, or the figures that show the failure
    remarks: Sequence[str] = ()  # for the author
    figures: Mapping[str, float] = field(default_factory=dict)  # all that were printed


@dataclass(frozen=True, kw_only=True)
class Draft:
    """All that is known of a new case. `pins` are the shared requirements, `own` those of one variant.

    `unknown` are sentences on requirements that could not be told. `script` is the text that both variants begin as.
    """

    id: str
    script: str
    image: str = "cpu"
    gpus: int = 0
    python: str = PYTHON
    pins: Sequence[str] = ()
    unknown: Sequence[str] = ()
    own: Mapping[Variant, Sequence[str]] = field(default_factory=dict)
    report: Report | None = None
    proposal: Proposal = field(default_factory=Proposal)
    proof: Proposal = field(default_factory=Proposal)
    timeout_s: float = 120.0

    @property
    def release(self) -> bool:
        return bool(self.own)

    @property
    def environment(self) -> str:
        """What the one environment is called: by what it is, where that is known."""
        return "cpu" if self.image == "cpu" and not self.gpus and self.script != EMPTY_SCRIPT else "current"


EMPTY_SCRIPT = f'''\
"""{blank("one line that says what fails, and when")}

What to look for: {blank("what this prints or raises, and why that is wrong")}
"""

# {blank("the smallest script that shows the failure: let it raise, or print lines name=value")}
'''


def files(draft: Draft) -> dict[str, str]:
    """Text by file name."""
    return {
        "case.yaml": manifest(draft),
        "repro.py": script(draft, Variant.REPRO),
        "fixed.py": script(draft, Variant.FIXED),
        "README.md": readme(draft),
    }


def script(draft: Draft, variant: Variant) -> str:
    """The script with the header that its variant's requirements ask for; in fixed.py, blanks for what differs."""
    text = draft.script if draft.script.endswith("\n") else f"{draft.script}\n"
    text = _HEADER.sub("", text, count=1).lstrip("\n")
    first = _FIRST_LINES.match(text)
    above = first[0] if first else ""
    body = text[len(above) :].lstrip("\n")
    lines = header([*draft.pins, *draft.own.get(variant, ())], draft.python)
    if variant is Variant.FIXED and draft.script == EMPTY_SCRIPT:
        return f"{lines}# {blank('repro.py with the fix, and nothing else changed')}\n"
    todo = "".join(f"# {blank(each)}\n" for each in _to_differ(draft)) if variant is Variant.FIXED else ""
    return f"{above}{lines}{todo}{body}"


def _to_differ(draft: Draft) -> Iterator[str]:
    """What fixed.py, written as repro.py is, has yet to differ in."""
    if not draft.release:
        yield "put the fix here; no other code may differ from repro.py"
    if _documented(draft.script):
        yield "the docstring is repro.py's: say what to look for with the fix"


def header(requirements: Sequence[str], python: str) -> str:
    """Inline script metadata as PEP 723 has it."""
    one_line = f"# dependencies = {json.dumps(list(requirements))}\n"
    several = "".join(["# dependencies = [\n", *(f"#   {json.dumps(each)},\n" for each in requirements), "# ]\n"])
    listed = one_line if len(one_line) <= 120 else several
    return f'# /// script\n# requires-python = "{_pythons(python)}"\n{listed}# ///\n'


def _pythons(python: str) -> str:
    """Besides this minor version the next, for those who run the script by itself."""
    major, minor = map(int, python.split("."))
    return f">={python},<{major}.{minor + 2}"


def without_header(text: str) -> str:
    return _HEADER.sub("", text, count=1)


# case.yaml


def manifest(draft: Draft) -> str:
    """The text of case.yaml: templates/case.yaml.j2."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 `check` never renders

    environment = Environment(  # noqa: S701 it is YAML; `scalar` quotes
        loader=PackageLoader("gpu_casebook.author"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"blank": blank, "flow": _flow, "scalar": scalar}
    return environment.get_template("case.yaml.j2").render(
        draft=draft,
        said=_docstring(draft.script),
        confirm=_CONFIRM,
        kinds=", ".join(Failure),
        variants=[(Variant.REPRO, *_of_repro(draft)), (Variant.FIXED, *_of_fixed(draft))],
    )


def _docstring(text: str) -> str:
    """The first line of the script's docstring, unless that is a blank."""
    line = _documented(text).strip().partition("\n")[0].strip().rstrip(".")
    return "" if MARK in line else line


def _documented(text: str) -> str:
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError, RecursionError):
        return ""


def _of_repro(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """A remark for the author, and what to write under `expect`."""
    what = "what shows the failure: exception, message, cuda_error, signal, hang or figures"
    if draft.proposal.repro:
        return _tried(draft.proposal), draft.proposal.repro
    return "", {"message": blank(what)}


def _of_fixed(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """The same for fixed, from the best that there is: a trial of it, a guess, the names of repro's figures."""
    if draft.proof.fixed:
        return _tried(draft.proof), draft.proof.fixed
    if draft.proposal.fixed:
        guessed = "Not tried, but guessed after a trial of repro.py"
        return _tried(draft.proposal, guessed), draft.proposal.fixed
    failing = draft.proposal.repro.get("figures", {})
    figures = {name: f"!= {value:.6g}" for name, value in draft.proposal.figures.items() if name in failing}
    if figures:
        what = "bounds for what fixed.py prints when its check passes; these only shut out what repro printed"
        return blank(what), {"figures": figures}
    return "", {
        "message": blank("what proves that the check ran and passed: better figures with bounds than a message")
    }


def _tried(proposal: Proposal, how: str = "One trial showed") -> str:
    seen = "".join(character if character.isprintable() else "?" for character in proposal.seen)
    return f"{_CONFIRM}, and remove this line. {how}: {seen}"


def _flow(values: Sequence[str]) -> str:
    return f"[{', '.join(scalar(each) if '[' in each else each for each in values)}]"


def scalar(text: str) -> str:
    """One line of text as YAML: bare where that is safe, otherwise in single quotes, or double ones if it must be."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NO_WORDS:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_double(character) for character in text) + '"'


def _double(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


# README.md


def readme(draft: Draft) -> str:
    title = _docstring(draft.script) or blank("the title, as in case.yaml")
    parts = [f"# {title}\n"]
    for section, what in SECTIONS.items():
        parts.append(f"## {section}\n{_known(draft, section)}{blank(what)}\n")
    return "\n".join(parts)


def _known(draft: Draft, section: str) -> str:
    if section == "What users saw" and draft.proposal.seen:
        return f"    {draft.proposal.seen}\n\n"
    if section == "History":
        link = f"[{draft.report.project} {draft.report.number}]({draft.report.url})" if draft.report else ""
        return f"| when | what |\n|---|---|\n| DATE | {link or 'the report'} |\n\n"
    if section == "The fix" and draft.release:
        return f"Upstream's: `{', '.join(draft.own[Variant.FIXED])}` has it.\n\n"
    return ""
