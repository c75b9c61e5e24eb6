"""Writing a case: new, add, and check as its reviewer."""

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failure_signature.kinds import Failure
from failure_signature.text import plural
from gpu_casebook.cli.base import CaseIds, CorpusOption, app, ends_in_one_line, own_root, root, seconds, shown
from gpu_casebook.errors import ManifestError, Severity, UsageError

if TYPE_CHECKING:
    from casebook_workbench.author.new import Begun

Pins = list[str] | None
_Source = Annotated[Path | None, typer.Option("--from", metavar="SCRIPT", help="A script that shows the failure.")]
_FixedSource = Annotated[
    Path | None,
    typer.Option("--fixed-from", metavar="SCRIPT", help="The same script with the fix; it is tried too."),
]
_Issue = Annotated[str | None, typer.Option(help="Link to the report: an issue, pull request or discussion on GitHub.")]
_Buggy = Annotated[
    Pins, typer.Option(metavar="NAME==VERSION", help="A release case: the version that has the bug. Needs --fixed.")
]
_Fixed = Annotated[Pins, typer.Option(metavar="NAME==VERSION", help="A release case: the version that has it no more.")]
_Require = Annotated[
    Pins, typer.Option(metavar="NAME==VERSION", help="A package in this version, whatever is installed here.")
]
_Variable = Annotated[
    Pins,
    typer.Option(
        metavar="NAME=VALUE", help="A variable for the trials. Those that the script reads are taken from here."
    ),
]
_Python = Annotated[
    Path | None, typer.Option(help="The Python that has the script's packages. Without it: the active environment's.")
]
_Timeout = Annotated[str, typer.Option(metavar="DURATION", help="For a trial: 90s, 2m.")]
_Again = Annotated[bool, typer.Option("--again", help="Replace a case of this id that is not committed.")]


@app.command()
@ends_in_one_line
def new(
    case: Annotated[str, typer.Argument(help="The new case's id: the name of its directory in cases/.")],
    source: _Source = None,
    issue: _Issue = None,
    fixed_source: _FixedSource = None,
    buggy: _Buggy = None,
    fixed: _Fixed = None,
    require: _Require = None,
    variable: _Variable = None,
    engine: Annotated[
        str | None, typer.Option(help="Try the script in what was locked: docker or venv. Without it: as it is here.")
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial/--no-trial", help="Whether to lock, run the script, and propose what it showed.")
    ] = True,
    python: _Python = None,
    timeout: _Timeout = "120s",
    again: _Again = False,
    corpus: CorpusOption = None,
) -> None:
    """Begin a case: write its directory, with all that a script and trials of it tell, and marked blanks.

    Requirements come from the script's imports, pinned to what is installed where you run it.
    """
    from casebook_workbench.author.check import check_all
    from gpu_casebook.console import Console

    out = Console(sys.stdout)
    begun = _begin(out.say, **locals())
    directory = begun.write()
    out.say(f"wrote {shown(directory)}/: case.yaml, repro.py, fixed.py, README.md")
    found = check_all(root(corpus), [case])
    errors = [each for each in found if each.severity is Severity.ERROR and "/locks/" not in each.path]
    of = f"{case} --corpus {shown(root(corpus))}" if corpus else case
    if errors:
        out.say(f"{len(errors)} left to fill in or confirm (nox -s check -- --static {of} names them all), first:")
        out.say(f"  {errors[0]}")
    lock = "" if begun.locks else f"nox -s lock -- {of} && "
    out.say(f"then: {lock}nox -s check -- {of}")


@app.command()
@ends_in_one_line
def add(
    case: Annotated[str | None, typer.Argument(help="The new case's id: the name of its directory in cases/.")] = None,
    source: _Source = None,
    issue: _Issue = None,
    fixed_source: _FixedSource = None,
    buggy: _Buggy = None,
    fixed: _Fixed = None,
    require: _Require = None,
    variable: _Variable = None,
    title: Annotated[str | None, typer.Option(help="One line: what fails, and when.")] = None,
    kind: Annotated[Failure | None, typer.Option(help="The kind of failure.")] = None,
    why: Annotated[str | None, typer.Option(help="The mechanism, from cause to symptom.")] = None,
    fix: Annotated[str | None, typer.Option(help="What the fix changes, and why that is right.")] = None,
    yours: Annotated[str | None, typer.Option(help="How a reader tells this failure from look-alikes.")] = None,
    because: Annotated[str | None, typer.Option(help="Where the fix is a work-around: why it is one.")] = None,
    engine: Annotated[str | None, typer.Option(help="docker or venv. Without it: virtual environments.")] = None,
    python: _Python = None,
    timeout: _Timeout = "120s",
    again: _Again = False,
    corpus: CorpusOption = None,
) -> None:
    """Add a whole case: try it, lock it, write it and review it. What no option says is asked.

    Both scripts are tried in locked environments, and what they show is proposed.
    """
    from dataclasses import replace

    from casebook_workbench.author.draft import Words, parse_report
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import capable

    out = Console(sys.stdout)
    engine = engine or capable("uses_host_python")
    case = _asked(case, "CASE", "The case's id")
    source = source or Path(_asked(None, "--from", "A script that shows the failure"))
    issue = _asked(issue, "--issue", "The report (OWNER/NAME#NUMBER)")
    parse_report(issue)
    if not fixed and not fixed_source:
        answer = _asked(None, "--fixed or --fixed-from", "The fix: a release (NAME==VERSION), or a script")
        fixed, fixed_source = ([answer], None) if "==" in answer else (None, Path(answer))
    if fixed and not buggy:
        buggy = [
            _asked(None, "--buggy", f"The release before it that has the bug ({fixed[0].partition('=')[0]}==VERSION)")
        ]
    begun = _begin(out.say, **locals())
    draft = begun.draft
    seen = draft.proposal.failure or Failure.EXCEPTION
    words = Words(
        title=_asked(title, "--title", "What fails, and when, in one line", draft.title or None),
        why=_asked(why, "--why", "Why: the mechanism, in two sentences or more"),
        fix=_asked(fix, "--fix", "The fix: what changes, and why that is right"),
        yours=_asked(yours, "--yours", "Is it yours: how a reader tells it from look-alikes"),
        because=_asked(because, "--because", "Why the fix is a work-around", "") if draft.workaround else because or "",
    )
    kind = kind or Failure(_asked(None, "--kind", f"Kind of failure ({', '.join(Failure)})", seen.value))
    draft = replace(draft, words=words, final=True, proposal=replace(draft.proposal, failure=kind))
    out.say(f"wrote {shown(replace(begun, draft=draft).write())}/")
    _review([case], None, engine, root(corpus))


def _asked(given: str | None, option: str, question: str, default: str | None = None) -> str:
    """Return what was given, or what a person answers. Raises UsageError if there is nobody to ask."""
    if given is not None:
        return given
    if not somebody():
        raise UsageError(f"{option} is missing, and nobody is here to be asked: {question}")
    return str(typer.prompt(question, default=default))


def somebody() -> bool:
    return sys.stdin.isatty()


def _begin(say: Callable[[str], None], *, case: str, corpus: Path | None, timeout: str, **given: Any) -> "Begun":
    """Begin a case with those of a command's options that `NewCase` has; an option that was not given has no value."""
    from casebook_workbench.author.new import NewCase, begin

    given |= {"variables": given["variable"]}
    options = {each.name: given[each.name] for each in fields(NewCase) if given.get(each.name) is not None}
    begun = begin(own_root(corpus), NewCase(id=case, timeout_s=seconds(timeout), **options), say)
    for note in begun.notes:
        say(f"  {note}")
    return begun


@app.command()
@ends_in_one_line
def check(
    cases: CaseIds = None,
    static: Annotated[bool, typer.Option("--static", help="Run nothing: only what the files tell.")] = False,
    environment: Annotated[
        str | None,
        typer.Option(help="Try the cases in this environment. Without it: the first whose hardware is here."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Try the cases with docker or venv.")] = None,
    corpus: CorpusOption = None,
) -> None:
    """Check manifests, scripts, script headers and locks: every mistake, with file and line.

    Cases that are named are reviewed: tried, tried with repro.py and fixed.py exchanged, and looked at as a maintainer
    would. Nothing is written.
    """
    if cases and not static:
        _review(cases, environment, engine, root(corpus))
    else:
        _check(cases or [], root(corpus))


def _check(cases: list[str], top: Path) -> None:
    from casebook_workbench.author.check import check_all
    from gpu_casebook.manifest.case import discover

    problems = check_all(top, cases)
    errors = [each for each in problems if each.severity is Severity.ERROR]
    for problem in problems:
        if problem.severity is not Severity.ERROR:
            print(problem)
    if errors:
        raise ManifestError(errors)
    print(f"{plural(len(cases) or len(discover(top)), 'case')} checked, no problems")


def _review(cases: list[str], environment: str | None, engine: str | None, top: Path) -> None:
    from casebook_workbench.author.review import review
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.manifest.case import manifest_path
    from gpu_casebook.run.options import Options

    out = Console(sys.stdout)
    for name in cases:
        manifest_path(top, name)
    wrong = 0
    with choose(engine, top, out.say) as chosen:
        if not engine and chosen.has_images:
            out.say("an environment's first image takes minutes; for a first look: --engine venv")
        for name in cases:
            found = review(top, name, Options(environment=environment, probes=False), chosen, out)
            for line in (*found.problems, *found.done):
                print(line)
            counts = ", ".join(plural(found.count(severity), severity) for severity in Severity)
            print(f"{name}: {counts}")
            wrong += found.count(Severity.ERROR)
    if wrong:
        raise typer.Exit(ManifestError.exit_status)
