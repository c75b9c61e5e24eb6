"""The files of a new case as text, with marked blanks for what only its author knows. Pure."""

import ast
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from failure_signature.kinds import Area, Failure, Variant
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.rules import BLANK
from gpu_casebook.packages import index
from gpu_casebook.pins import CPU_BUILD, ORDINARY, Special
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
    """What to write under `expect`, as trials suggest; empty where they suggest nothing."""

    failure: Failure | None = None
    repro: Mapping[str, Any] = field(default_factory=dict)  # by key: a text, a list, or bounds by figure
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: str = ""  # how the trial ended, or the figures that show the failure
    remarks: Sequence[str] = ()  # for the author
    figures: Mapping[str, float] = field(default_factory=dict)  # all that were printed
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of those that each trial printed
    trials: int | None = None  # that a rate asks for


@dataclass(frozen=True)
class Words:
    """What only the author knows; where all of it is given nothing is left to fill in or to confirm."""

    title: str = ""
    why: str = ""
    fix: str = ""
    yours: str = ""  # how a reader tells this failure from look-alikes
    because: str = ""  # why a work-around is one


@dataclass(frozen=True, kw_only=True)
class Draft:
    """All that is known of a new case."""

    id: str
    script: str  # the text that both variants begin as
    fixed_script: str = ""  # that of fixed.py, if it is another one
    words: Words = field(default_factory=Words)
    final: bool = False  # the author has been asked: what was proposed needs no confirmation
    image: str = "cpu"
    gpus: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    ran: str = ""  # where the trials were, for the README
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
    def special(self) -> Special:
        """What is locked besides the default index: PyTorch's own, for its CPU builds."""
        every = [*self.pins, *(each for pins in self.own.values() for each in pins)]
        return Special(indexes=(index.NAME,)) if any(each.endswith(CPU_BUILD) for each in every) else ORDINARY

    @property
    def simulated(self) -> bool:
        """Whether kernels seem to be interpreted."""
        return not self.gpus and "TRITON_INTERPRET" in f"{[*self.variables]}{self.script}"

    @property
    def project(self) -> str:
        """The name of the package that the report is about, as far as its repository tells; "" without a report."""
        return self.report.project.rpartition("/")[2].lower() if self.report else ""

    @property
    def workaround(self) -> bool:
        """Whether the package that the report is about seems to run, in one version."""
        return not self.release and self.project in {re.split(r"[=\[]", each)[0] for each in self.pins}

    @property
    def title(self) -> str:
        return self.words.title or _docstring(self.script)

    @property
    def environment(self) -> str:
        """Its name: by what it is, if that is known."""
        if self.simulated:
            return "interpreter"
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
    text = draft.fixed_script if variant is Variant.FIXED and draft.fixed_script else draft.script
    text = _HEADER.sub("", text if text.endswith("\n") else f"{text}\n", count=1).lstrip("\n")
    first = _FIRST_LINES.match(text)
    above = first[0] if first else ""
    body = text.removeprefix(above).lstrip("\n")
    # Whoever has not the index of a build takes the release's.
    lines = header([each.removesuffix(CPU_BUILD) for each in (*draft.pins, *draft.own.get(variant, ()))])
    documented = _documented(text)
    if draft.final and (not documented or (variant is Variant.FIXED and documented == _documented(draft.script))):
        body = _with_docstring(body, _told(draft, variant))
    elif variant is Variant.FIXED and not draft.fixed_script:
        if draft.script == EMPTY_SCRIPT:
            return f"{lines}# {blank('repro.py with the fix, and nothing else changed')}\n"
        if not draft.release:
            lines += f"# {blank('put the fix here; no other code may differ from repro.py')}\n"
        if documented:
            lines += f"# {blank(_OTHER_DOCSTRING)}\n"
    return f"{above}{lines}{body}"


def _told(draft: Draft, variant: Variant) -> str:
    """Return a docstring: what fails, and what to look for."""
    if variant is Variant.REPRO:
        return f"{draft.title}.\n\nWhat to look for: {draft.proposal.seen}\n"
    fixed = f"with {', '.join(draft.own[variant])}" if draft.release else "with the fix"
    return f"{draft.title}: not {fixed}.\n\nWhat to look for: {draft.proof.seen}\n"


def _with_docstring(body: str, docstring: str) -> str:
    tree, lines = ast.parse(body), body.splitlines(keepends=True)
    if ast.get_docstring(tree) is not None:
        node = tree.body[0]
        del lines[node.lineno - 1 : node.end_lineno]
    text = (
        "\n".join(textwrap.fill(line, 110) for line in docstring.splitlines()).replace("\\", "\\\\").replace('"', "'")
    )
    return f'"""{text}\n"""\n{"" if lines[:1] == [chr(10)] else chr(10)}{"".join(lines)}'


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
        loader=PackageLoader("casebook_workbench.author"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"blank": blank, "flow": _flow, "scalar": scalar, "given": _given}
    return environment.get_template(template).render(draft=draft, said=draft.title, **values)


def manifest(draft: Draft) -> str:
    """Return the text of case.yaml."""
    variants = [(Variant.REPRO, *_of_repro(draft)), (Variant.FIXED, *_of_fixed(draft))]
    confirm = "" if draft.final else _CONFIRM
    return _render(
        "case.yaml.j2", draft, confirm=confirm, kinds=", ".join(Failure), areas=", ".join(Area), variants=variants
    )


def _docstring(text: str) -> str:
    """Return the first line of the script's docstring, unless that is a blank."""
    line = _documented(text).strip().partition("\n")[0].strip().rstrip(".")
    return "" if BLANK in line else line


def _documented(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


def _given(text: str, what: str) -> str:
    """Return the author's words in lines of a README, or a blank."""
    return "\n".join(textwrap.fill(each, 120, break_long_words=False) for each in text.splitlines()) or blank(what)


def _of_repro(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """Return a remark for the author, and what to write under `expect`."""
    if draft.proposal.repro:
        return _tried(draft, draft.proposal), draft.proposal.repro
    what = "what shows the failure: exception, message, cuda_error, signal, hang or figures"
    return "", {"message": blank(what)}


def _of_fixed(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    """Return the same for fixed, from the best that there is: a trial of it, a guess, the names of repro's figures."""
    if draft.proof.fixed:
        return _tried(draft, draft.proof), draft.proof.fixed
    if draft.proposal.fixed:
        guessed = "Not tried, but guessed after a trial of repro.py"
        return _tried(draft, draft.proposal, guessed), draft.proposal.fixed
    failing = draft.proposal.repro.get("figures", {})
    figures = {name: f"!= {value:.6g}" for name, value in draft.proposal.figures.items() if name in failing}
    if figures:
        what = "bounds for what fixed.py prints when its check passes; these only shut out what repro printed"
        return blank(what), {"figures": figures}
    what = "what proves that the check ran and passed: better figures with bounds than a message"
    return "", {"message": blank(what)}


def _tried(draft: Draft, proposal: Proposal, how: str = "Trials showed") -> str:
    if draft.final:
        return ""
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
