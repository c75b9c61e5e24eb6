"""From evidence on disk to a report to paste and a folder of files to attach: the part that touches files."""

import getpass
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from casebook_workbench.issue.issue import Issue, Source, best, compose, form_of, open_report
from casebook_workbench.redact import Private, redacted
from casebook_workbench.releases.records import bisections
from failure_signature.kinds import Variant
from failure_signature.text import date
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.evidence import Evidence, evidence_files, load
from gpu_casebook.manifest.case import Case, find, known_images
from gpu_casebook.manifest.model import Provenance
from gpu_casebook.report.provenance import what_ran
from gpu_casebook.report.readme import Readme
from gpu_casebook.report.watched import Sighting, State, known
from gpu_casebook.revision import git

_OUR_CODE = {Provenance.DISTILLED, Provenance.PATTERN}
_GITHUB = re.compile(
    r"(?:https://(?:[^@/]+@)?|git@|ssh://git@)github\.com[/:](?P<project>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)


@dataclass(frozen=True)
class Filed:
    """The report and the evidence it rests on."""

    issue: Issue
    case: Case
    run: Evidence
    notes: Sequence[str]  # what was chosen, and what to know before filing it


def file(
    root: Path,
    case: str,
    places: Sequence[Path],
    environment: str | None = None,
    evidence: Path | None = None,
    *,
    anyway: bool = False,
) -> Filed:
    """Make the report from the best evidence in these reports directories.

    Raises UsageError if there is none, with the command that makes it; unless `anyway` also if no code of the project
    ran, or the case was edited since the evidence was made; and CasebookError if it can't be read.
    """
    found = find(root, case, known_images(root))
    ran = what_ran(found.manifest.provenance, found.manifest.upstream.project)
    if found.manifest.provenance in _OUR_CODE and not anyway:
        what = f"{found.id} is {found.manifest.provenance}, which is no bug report for that project. {ran}"
        raise UsageError(f"{what} --anyway writes it all the same, with this sentence first")
    if environment:
        found.environment(environment)
    if evidence:
        run = load(evidence)
        notes = [f"from {evidence}: {_summary(run)}"]
    else:
        run, notes = _chosen(found, places, environment)
    if run.case.id != found.id:
        raise UsageError(f"--evidence {evidence}: that is a run of {run.case.id}, not of {found.id}")
    histories = [known(place, found.id).history.items() for place in places]
    seen = {name: sightings[-1] for name, sightings in chain.from_iterable(histories) if sightings}
    declared = found.manifest.environments.get(run.environment.name)
    source = Source(
        run=run,
        script=found.script(Variant.REPRO).read_text(encoding="utf-8"),
        ran=ran,
        stale=found.digest() != run.case.digest,
        why=Readme.read(found.directory).why,
        variables=run.environment.variables or (declared.variables if declared else {}),
        link=_link(root, found.id),
        bisections=[each for place in places for each in bisections(place, found.id)],
        sightings=seen,
        private=private(root),
    )
    if source.stale and not anyway:
        again = f"run it again: nox -s case-{found.id} -- --environment {run.environment.name}"
        raise UsageError(f"{found.id} was edited since this run ({_summary(run)}): {again}; or add --anyway")
    if not open_report(run.case.upstream) and "projects" not in form_of(run.case.upstream.project):
        notes.append(f"no form of {run.case.upstream.project} is known here: this is the generic one")
    return Filed(compose(source), found, run, [*_reasons_not_to(run, seen), *notes])


def _chosen(case: Case, places: Sequence[Path], environment: str | None) -> tuple[Evidence, list[str]]:
    runs = [(path.name, load(path)) for place in places for path in evidence_files(place, case.id)]
    candidates = [(name, run) for name, run in runs if environment in {None, run.environment.name}]
    digest = case.digest()
    fresh = [run for _, run in candidates if run.case.digest == digest]
    chosen = best(fresh) or best([run for _, run in candidates])
    if chosen is None:
        asked = f" -- --environment {environment}" if environment else ""
        where = f" in environment {environment}" if environment else ""
        raise UsageError(f"there is no evidence of {case.id}{where}; make it: nox -s case-{case.id}{asked}")
    notes = [f"from {name}: {_summary(run)}" for name, run in candidates if run is chosen]
    return chosen, notes + [f"  passed over: {_summary(run)}" for _, run in candidates if run is not chosen]


def _reasons_not_to(run: Evidence, seen: Mapping[str, Sighting]) -> Iterator[str]:
    upstream = run.case.upstream
    if upstream.status == "fixed":
        where = f" ({upstream.fixed})" if upstream.fixed else ""
        yield f"upstream has fixed this{where}: why file it? See {upstream.issue or f'github.com/{upstream.project}'}"
    if gone := [each.packages or name for name, each in seen.items() if each.state is State.FIXED]:
        yield f"the newest releases have it no more ({', '.join(gone)}): why file it?"


def _summary(run: Evidence) -> str:
    where = f"environment {run.environment.name} on {run.device} ({run.environment.grade})"
    return f"{run.verdict} in {where}, {date(run.started)}"


def _link(root: Path, case: str) -> str | None:
    """Return where the checkout's repository has the case on GitHub, as last committed, or None if it is not there."""
    match = _GITHUB.fullmatch((git(root, "config", "--get", "remote.origin.url") or "").strip())
    commit = (git(root, "log", "-1", "--format=%H", "--", f"cases/{case}") or "").strip() or "HEAD"
    return f"https://github.com/{match['project']}/tree/{commit}/cases/{case}" if match else None


def private(root: Path) -> Private:
    """Return what is known to be private on this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    host = socket.gethostname()
    return Private(
        places={str(root.resolve()): "casebook", str(Path.home()): "~"},
        users=frozenset({user, Path.home().name} - {""}),
        hosts=frozenset({host, host.partition(".")[0]} - {""}),
    )


def gist(filed: Filed, directory: Path, root: Path) -> tuple[list[Path], Counter[str]]:
    """Write a folder to attach: both scripts, the locks of the environment, the report, and the evidence.

    A gist knows no folders, so there are none. Everything in it is redacted; what was removed is counted. Raises
    UsageError if the directory is not empty.
    """
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise UsageError(f"--gist {directory}: it is there already, and not an empty folder; name a new one")
    counts = Counter[str]()
    texts = _attached(filed, private(root), counts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CasebookError(f"--gist {directory}: can't be written: {error.strerror}") from None
    return [directory / name for name in texts], counts


def _attached(filed: Filed, known: Private, counts: Counter[str]) -> dict[str, str]:
    """Return what to attach, redacted, by file name."""
    files = {f"{variant}.py": filed.case.script(variant) for variant in Variant}
    locks = [filed.case.lock_path(filed.run.environment.name, variant) for variant in Variant]
    files |= {f"lock.{lock.name}": lock for lock in locks if lock.is_file()}
    texts = {name: redacted(path.read_text(encoding="utf-8"), known, counts) for name, path in files.items()}
    texts["report.md"] = f"# {filed.issue.title}\n\n{filed.issue.body}"
    plain, attestations = filed.run.model_dump(mode="json"), ("attestation", "fixed_attestation")
    there = [name for name in attestations if plain["environment"][name]]
    versions = {name: plain["environment"][name].pop("packages") for name in there}  # of four numbers: like an address
    data = redacted(plain, known, counts)
    for name in there:
        data["environment"][name]["packages"] = versions[name]
    texts["evidence.json"] = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return texts
