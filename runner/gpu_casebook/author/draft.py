"""The files of a new case as text, with marked blanks for what only its author knows. Pure."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from gpu_casebook.errors import UsageError
from gpu_casebook.kinds import Failure, Variant
from gpu_casebook.manifest.rules import BLANK
from gpu_casebook.trial import PYTHON

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
_CONFIRM = f"{BLANK}: confirm"
_LONGEST_LINE = 120
_OTHER_DOCSTRING = "the docstring is repro.py's: say what to look for with the fix"


def blank(what: str) -> str:
    return f"{BLANK}: {what}"


class Report(NamedTuple):
    """Where a failure was reported: "owner/name", "issues", "pull" or "discussions", and the number."""

    project: str
    kind: str
    number: int

    @property
    def url(self) -> str:
        return f"https://github.com/{self.project}/{self.kind}/{self.number}"


def parse_report(text: str) -> Report:
    """Return the report that a link leads to. Raises UsageError for anything but a report on GitHub."""
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
    """All that is known of a new case."""

    id: str
    script: str  # the text that both variants begin as
    image: str = "cpu"
    gpus: int = 0
    pins: Sequence[str] = ()  # the shared requirements
    unknown: Sequence[str] = ()  # what is not known of the requirements, in sentences
    own: Mapping[Variant, Sequence[str]] = field(default_factory=dict)  # the requirements of one variant
    report: Report | None = None
    proposal: Proposal = field(default_factory=Proposal)
    proof: Proposal = field(default_factory=Proposal)
    timeout_s: float = 120.0

    @property
    def release(self) -> bool:
        return bool(self.own)

    @property
    def environment(self) -> str:
        """Its name: by what it is, if that is known."""
        return "cpu" if self.image == "cpu" and not self.gpus and self.script != EMPTY_SCRIPT else "current"


EMPTY_SCRIPT = f'''\
"""{blank("one line that says what fails, and when")}

What to look for: {blank("what this prints or raises, and why that is wrong")}
"""

# {blank("the smallest script that shows the failure: let it raise, or print lines name=value")}
'''


def files(draft: Draft) -> dict[str, str]:
    """Return the files of the case, by name."""
    return {
        "case.yaml": manifest(draft),
        "repro.py": script(draft, Variant.REPRO),
        "fixed.py": script(draft, Variant.FIXED),
        "README.md": _render("README.md.j2", draft),
    }


def script(draft: Draft, variant: Variant) -> str:
    """Return the script with the header that its variant's requirements ask for, in fixed.py with blanks."""
    text = draft.script if draft.script.endswith("\n") else f"{draft.script}\n"
    text = _HEADER.sub("", text, count=1).lstrip("\n")
    first = _FIRST_LINES.match(text)
    above = first[0] if first else ""
    body = text.removeprefix(above).lstrip("\n")
    lines = header([*draft.pins, *draft.own.get(variant, ())])
    if variant is Variant.REPRO:
        return f"{above}{lines}{body}"
    if draft.script == EMPTY_SCRIPT:
        return f"{lines}# {blank('repro.py with the fix, and nothing else changed')}\n"
    if not draft.release:
        lines += f"# {blank('put the fix here; no other code may differ from repro.py')}\n"
    if _documented(draft.script):
        lines += f"# {blank(_OTHER_DOCSTRING)}\n"
    return f"{above}{lines}{body}"


def header(requirements: Sequence[str]) -> str:
    """Return inline script metadata as PEP 723 has it."""
    listed = f"# dependencies = {json.dumps(list(requirements))}\n"
    if len(listed) > _LONGEST_LINE:
        listed = "".join(["# dependencies = [\n", *(f"#   {json.dumps(each)},\n" for each in requirements), "# ]\n"])
    # Besides the minor version of the images the next one, for those who run the script by itself.
    major, minor = map(int, PYTHON.split("."))
    return f'# /// script\n# requires-python = ">={PYTHON},<{major}.{minor + 2}"\n{listed}# ///\n'


# case.yaml and README.md: templates/


def _render(template: str, draft: Draft, **values: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 what is only parsed is not rendered

    environment = Environment(  # noqa: S701 these are YAML, which `scalar` quotes, and a page for its author to edit
        loader=PackageLoader("gpu_casebook.author"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"blank": blank, "flow": _flow, "scalar": scalar}
    return environment.get_template(template).render(draft=draft, said=_docstring(draft.script), **values)


def manifest(draft: Draft) -> str:
    """Return the text of case.yaml."""
    variants = [(Variant.REPRO, *_of_repro(draft)), (Variant.FIXED, *_of_fixed(draft))]
    return _render("case.yaml.j2", draft, confirm=_CONFIRM, kinds=", ".join(Failure), variants=variants)


def _docstring(text: str) -> str:
    """Return the first line of the script's docstring, unless that is a blank."""
    line = _documented(text).strip().partition("\n")[0].strip().rstrip(".")
    return "" if BLANK in line else line


def _documented(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


def _of_repro(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """Return a remark for the author, and what to write under `expect`."""
    if draft.proposal.repro:
        return _tried(draft.proposal), draft.proposal.repro
    what = "what shows the failure: exception, message, cuda_error, signal, hang or figures"
    return "", {"message": blank(what)}


def _of_fixed(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """Return the same for fixed, from the best that there is: a trial of it, a guess, the names of repro's figures."""
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
    what = "what proves that the check ran and passed: better figures with bounds than a message"
    return "", {"message": blank(what)}


def _tried(proposal: Proposal, how: str = "One trial showed") -> str:
    seen = "".join(character if character.isprintable() else "?" for character in proposal.seen)
    return f"{_CONFIRM}, and remove this line. {how}: {seen}"


def _flow(values: Sequence[str]) -> str:
    return f"[{', '.join(scalar(each) if '[' in each else each for each in values)}]"


def scalar(text: str) -> str:
    """Return one line of text as YAML: bare where that is safe, otherwise in quotes."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    quote = "'" if text.isprintable() else '"'
    return yaml.safe_dump(text, default_style=quote, allow_unicode=True, width=2**31).removesuffix("\n")
