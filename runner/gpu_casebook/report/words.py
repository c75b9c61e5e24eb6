"""Facts of the evidence, and of a case's own files, as a person reads them. `section_why` and `placed` read those."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import yaml
from packaging.utils import canonicalize_name

from gpu_casebook.evidence import CaseFacts, EnvironmentFacts, Evidence, Gpu, Rate, Trial, UpstreamFacts, Verdict, slug
from gpu_casebook.files import read_text
from gpu_casebook.judging.description import number
from gpu_casebook.kinds import Area, Grade, Variant
from gpu_casebook.manifest.bounds import Bound
from gpu_casebook.manifest.case import MAX_CASE_BYTES
from gpu_casebook.manifest.model import INDEX_LINES
from gpu_casebook.packages.lock import pins
from gpu_casebook.reading.printed import read
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.text import size, utc

DIFF_LIMIT = 20_000
_FILE = re.compile(r"(?:---|\+\+\+) (?:repro|fixed)\.py$")
_HEADER = re.compile(r"# (?:dependencies|requires-python) = ")
_DOCSTRING = re.compile(r'\s*[rR]?"""\w')
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")

SIMULATED = (
    "simulated: not on the device that the bug lives on. The scripts were compiled only, interpreted, or run on a "
    "model of it: this says something about the code, and nothing about what the device makes of it."
)


DRIFTED = (
    "drifted: what ran is not what the case locks, in something that the failure can depend on, so this shows what "
    "these packages do, which need not be what the locked ones do."
)


ASIDE = "drifted aside: what ran is not all as locked, but in nothing that the failure is likely to depend on."


BY_VERSION = (
    "by version: packages have the locked versions; nobody looked whether their files are the ones that belong to them."
)


OLDER = "older rules: judged by version {} of what a verdict means, and this runner has version {}."


UNATTESTED = "not attested: nothing looked at what was really installed."
_NOT_OF_A_CARD = re.compile(r"^(?:(?:NVIDIA|Tesla|GeForce) )+|[ -](?:\d+ ?GB|SXM|PCIe|HBM|NVL).*$")


_CAPABLE = re.compile(r"""(?m)^ +compute_capability: *["']([^"'\n]+)""")
_CAPABLE_FROM = re.compile(r"(?m)^ +(capability_from: .*)")
_LINKED = re.compile(r"(.*) \((https://[^\s()]+)\)")
_ENVIRONMENT = re.compile(r"(?m)^  (?=\w)")
_NAMES = {"7.0": "Volta", "7.5": "Turing", "8.0": "Ampere", "8.6": "Ampere", "8.9": "Ada", "9.0": "Hopper"}
_NAMES |= dict.fromkeys(("10.0", "10.3", "12.0", "12.1"), "Blackwell")
"""Of architectures, by compute capability."""


_RAN = {
    "release": "Releases of {} ran, one with the defect and one without it.",
    "release-workaround": "A release of {} ran, with the defect; the fixed script works around it.",
    "sources": "Files of {} ran, as they are at a commit.",
    "distilled": "No code of {} ran: the scripts are minimal code with the same defect, written for this corpus.",
    "pattern": "No code of {} ran: the scripts illustrate a mechanism.",
}
_TOLD_SINCE = 3
"""The semantics from which on evidence has these words; before, it had two of them for everything."""


def what_ran(provenance: str, project: str, semantics: int = SEMANTICS) -> str:
    """Return what of the accused project ran, in a sentence. `semantics` is that of the evidence, if it is from any."""
    if semantics < _TOLD_SINCE or provenance not in _RAN:
        return f"Recorded as {provenance}, before the record said what of {project} ran."
    return _RAN[provenance].format(project)


def then(run: Evidence, case: CaseFacts) -> list[str]:
    """Return what of the project ran then, where that is recorded and is not what the case has by now."""
    told = run.semantics >= _TOLD_SINCE or case.provenance == "sources"  # which nothing was, before that was told
    if not told or run.case.provenance == case.provenance:
        return []
    return [f"Then: {what_ran(run.case.provenance, case.upstream.project, run.semantics)}"]


def share(rate: Rate | None) -> str:
    return f"{rate.k} of {rate.n}" if rate and rate.n else "none"


def interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def same_figures(trials: Sequence[Trial]) -> bool:
    """Return whether there are figures, and each variant's are the very same in all of these trials."""
    seen = [(trial.variant, trial.observation.figures) for trial in trials if trial.observation.figures]
    return 0 < len({(variant, *sorted(figures.items())) for variant, figures in seen}) == len(dict(seen))


def without_failure(run: Evidence, stdout: str) -> Iterator[str]:
    """Yield a line if a run of repro printed figures that are not those of the failure, as the case declares it."""
    lines = [line.partition(": ") for line in run.case.signature.get(Variant.REPRO, [])]
    declared = {what: wanted for what, _, wanted in lines}
    seen = {name: value for name, value in read(stdout).figures.items() if f"figure {name}" in declared}
    with suppress(ValueError):  # of a bound that no longer is one
        bounds = {name: Bound.parse(declared[f"figure {name}"]) for name in seen}
        off = [
            f"{name}={number(seen[name])} (declared {bound})"
            for name, bound in bounds.items()
            if not bound.holds(seen[name])
        ]
        if off:
            yield f"the failure did not occur in this run: {', '.join(off)}"


def packages(environment: EnvironmentFacts) -> str:
    """Return in a word whether what was installed is what was declared."""
    if environment.attestation is None:
        return "not attested"
    if environment.drift:
        return "drifted" if environment.relevant_drift else "drifted aside"
    return "exact" if environment.exact else "by version"


def worth(run: Evidence) -> tuple[bool, bool, bool, bool, bool, bool, datetime]:
    """Return by what one run says more than another, for `max`."""
    environment, rate = run.environment, run.rates.get(Variant.REPRO)
    return (
        run.verdict is Verdict.CONFIRMED,
        rate is not None and rate.k > 0,
        environment.grade is Grade.HARDWARE,
        environment.exact,
        environment.by_version or not environment.relevant_drift,
        run.semantics >= SEMANTICS,
        utc(run.started),
    )


def seen_on(runs: Sequence[Evidence]) -> list[str]:
    """Return for each card, and for the CPU, its name and what the best evidence from there is worth."""
    if not runs:
        return []
    case = newest(runs).case
    best = {run.device: run for run in sorted(runs, key=lambda run: (_scripts(run.case) == _scripts(case), worth(run)))}
    devices = dict.fromkeys(run.device for run in runs)
    return [f"{card(device)} {_worth(best[device], case)}" for device in devices]


def card(device: str) -> str:
    """Return a device's name without its vendor and its memory: H100; CPU stays."""
    return _NOT_OF_A_CARD.sub("", device)


def _scripts(case: CaseFacts) -> tuple[str, ...]:
    """Return what tells the scripts of a case from earlier ones: what evidence has of them."""
    return case.provenance, case.fix_diff


def _worth(run: Evidence, case: CaseFacts) -> str:
    if run.verdict is not Verdict.CONFIRMED:
        return run.verdict
    simulated = ["simulated"] if run.environment.grade is Grade.SIMULATED else []
    older = ["older rules"] if run.semantics < SEMANTICS else []
    if _scripts(run.case) != _scripts(case) and not older:
        older = ["earlier scripts"]
    return ", ".join([*simulated, packages(run.environment), *older])


def cautions(run: Evidence) -> list[str]:
    """Return what makes this evidence worth less, in sentences."""
    told = {"not attested": UNATTESTED, "drifted": DRIFTED, "drifted aside": ASIDE, "by version": BY_VERSION}
    word = packages(run.environment)
    found = [SIMULATED] if run.environment.grade is Grade.SIMULATED else []
    found += [told[word]] if word in told else []
    return found if run.semantics >= SEMANTICS else [*found, OLDER.format(run.semantics, SEMANTICS)]


def page_name(case: str) -> str:
    """Return the name of a case's page in the reports directory."""
    return f"{slug(case)}.md"


def gpu(found: Gpu) -> str:
    memory = [size(found.memory_bytes)] if found.memory_bytes else []
    return ", ".join([found.name, f"compute capability {found.compute_capability}", *memory])


def newest(runs: Sequence[Evidence]) -> Evidence:
    return max(runs, key=lambda run: utc(run.started))


def newest_hardware_first(runs: Sequence[Evidence]) -> list[Evidence]:
    """Sort: runs before skipped ones, hardware before simulated, newest first; ties by environment, engine, device."""
    named = sorted(runs, key=lambda run: (run.environment.name, run.engine.name, run.device))
    latest = sorted(named, key=lambda run: utc(run.started), reverse=True)
    return sorted(latest, key=lambda run: (run.verdict is Verdict.SKIPPED, run.environment.grade is Grade.SIMULATED))


def home_of(upstream: UpstreamFacts) -> str | None:
    """Return the project's address on GitHub, or None if its issue is elsewhere."""
    home = f"https://github.com/{upstream.project}"
    return home if (upstream.issue or "").startswith(f"{home}/") else None


def section_why(readme: Path) -> str:
    """Return the section "Why" of a case's README, without its heading; empty if there is none."""
    try:
        text = read_text(readme, MAX_CASE_BYTES)
    except OSError:
        return ""
    return text.partition("\n## Why\n")[2].partition("\n## ")[0].strip()


class Capable(NamedTuple):
    """A range of compute capabilities, and where it comes from; without that it is a guess."""

    range: str
    source: str | None = None

    def __str__(self) -> str:
        return self.range if self.source else f"{self.range} (a guess)"

    @property
    def linked(self) -> tuple[str, str]:
        """Return the source without the link in parentheses that it may end in, and that link."""
        found = _LINKED.fullmatch(self.source or "")
        return (found[1], found[2]) if found else (self.source or "a guess, which nobody has measured", "")


def architectures(runs: Sequence[Evidence], capable: Sequence[Capable] = ()) -> str:
    """Return the GPUs' architectures that a case was seen on, and of which range; the CPU has none."""
    found = (run.environment.attestation for run in runs if run.verdict is not Verdict.SKIPPED)
    seen = {gpu.compute_capability for each in found if each for gpu in each.gpus}
    named = [f"{_NAMES.get(each, 'GPU')} (sm_{each.replace('.', '')})" for each in sorted(seen)]
    if not capable:
        return ", ".join(named)
    return f"{', '.join(named) or 'none yet'}, of {' or '.join(map(str, capable))}"


class Placed(NamedTuple):
    """Where the index has a case, and what it says of it: `symptom` stands in for the title where it is given."""

    area: Area | None = None
    symptom: str | None = None
    capable: tuple[Capable, ...] = ()  # what it may run on


def placed(manifest: Path) -> Placed:
    """Return what a case's manifest says for the index; nothing where there is none.

    A few lines of it are read, not the whole: there may be a thousand, and the index is written after each run.
    """
    try:
        text = read_text(manifest, MAX_CASE_BYTES)
        found = yaml.safe_load("".join(each for each in re.findall(INDEX_LINES, text) if each[0] != " ")) or {}
        area, symptom = Area(found["area"]) if "area" in found else None, str(found.get("symptom") or "") or None
        return Placed(area, symptom, tuple(dict.fromkeys(_capable(text))))
    except (OSError, ValueError, yaml.YAMLError):
        return Placed()


def _capable(manifest: str) -> Iterator[Capable]:
    for environment in _ENVIRONMENT.split(manifest):
        if found := _CAPABLE.search(environment):
            source = _CAPABLE_FROM.search(environment)
            yield Capable(found[1], yaml.safe_load(source[1])["capability_from"] if source else None)


def unseen(places: Mapping[str, Placed], seen: Container[str]) -> list[tuple[str, tuple[Capable, ...]]]:
    """Return the cases that need a GPU and were never run, with what it must be capable of."""
    return [(case, place.capable) for case, place in sorted(places.items()) if place.capable and case not in seen]


def mechanism(why: str) -> str:
    """Return the first two sentences of a README's section on the mechanism, on one line."""
    return " ".join(_SENTENCE.split(" ".join(why.partition("\n\n")[0].split()))[:2])


def shown_fix(diff: str) -> str:
    """Return the hunks of a diff of scripts in which code changes, without docstrings and headers, and bounded."""
    hunks, inside = list[list[str]]([[]]), dict[str, bool]()
    for line in diff.rstrip("\n").split("\n"):
        if line.startswith("@@"):
            hunks.append([line])
            inside = {}
        elif not _FILE.match(line) and not _HEADER.match(line[1:]) and not _in_docstring(line, inside):
            hunks[-1].append(line)
    changing = [hunk for hunk in hunks if any(line[:1] in {"-", "+"} and line[1:].strip() for line in hunk)]
    return _bounded("\n".join(line for hunk in changing for line in hunk))


def _in_docstring(line: str, inside: dict[str, bool]) -> bool:
    """Return whether a line of a diff belongs to a docstring. `inside`: whether one is open, in each script."""
    sides = "-+" if line[:1] == " " else line[:1]
    before = any(inside.get(side) for side in sides)
    found = before or bool(_DOCSTRING.match(line[1:]))
    inside |= dict.fromkeys(sides, found and before != (line.count('"""') % 2 == 1))
    return found


def _bounded(diff: str) -> str:
    if len(diff) <= DIFF_LIMIT:
        return diff
    kept = diff[:DIFF_LIMIT].rpartition("\n")[0]
    return f"{kept}\n[... {diff.count(chr(10), len(kept))} more lines ...]"


def _pinned(requirements: Iterable[str]) -> dict[str, str]:
    """Return the versions by package; evidence may have been written by hand, so what is no pin is left out."""
    found = dict[str, str]()
    for each in requirements:
        with suppress(ValueError):
            found |= pins([each])
    return found


def _tags(home: str, old: str, new: str) -> str:
    """Return where the project shows what changed between two releases: no tag has the "+cpu" of a build."""
    return f"{home}/compare/" + "...".join(f"v{version.partition('+')[0]}" for version in (old, new))


def changed_versions(run: Evidence) -> list[tuple[str, str, str, str | None]]:
    """Return package, version of repro, version of fixed, and where to compare them if the package is the project's.

    The same of upstream's files, whose versions are commits.
    """
    repro, fixed = (_pinned(run.environment.variant_requirements.get(variant, [])) for variant in Variant)
    home, named = home_of(run.case.upstream), canonicalize_name(run.case.upstream.project.rpartition("/")[2])
    own = {named, {"pytorch": "torch"}.get(named)}
    files = [{file.path: file for file in run.environment.sources.get(variant, [])} for variant in Variant]
    both = [(old, new) for path, old in files[0].items() if (new := files[1].get(path)) and new.sha256 != old.sha256]
    return [
        (name, old, fixed[name], _tags(home, old, fixed[name]) if home and name in own else None)
        for name, old in repro.items()
        if fixed.get(name, old) != old
    ] + [
        (old.path, old.commit[:12], new.commit[:12], f"{old.url}/compare/{old.commit}...{new.commit}")
        for old, new in both
    ]
