"""The record a verdict rests on, and its JSON. Pure data: complete enough to render every report again."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError

from failure_signature.document import Bytes, Moment, Seconds
from failure_signature.kinds import Grade, Variant
from failure_signature.trials import Demand, Rate, SanitizerReport, Trial, Verdict
from gpu_casebook.document import Document
from gpu_casebook.errors import CasebookError
from gpu_casebook.pins import SourceFile
from gpu_casebook.probe_registry import probe_of
from gpu_casebook.trial import GpuAccess


class ProbeRecord(Document):
    """One instrumented run after the verdict. What else a probe has to say is in a record type of its own."""

    probe: str
    """The kind of the record, by which its probe is found: see `gpu_casebook.probe_registry`."""
    note: str | None = None
    """Why it gave nothing."""
    duration_s: Seconds = 0.0
    stdout: str = ""
    stderr: str = ""


class SanitizerProbe(ProbeRecord):
    """One script under one tool. What the tool finds in fixed as well explains nothing."""

    probe: Literal["sanitizer"] = "sanitizer"
    variant: Variant = Variant.REPRO
    report: SanitizerReport


class UnknownRecord(ProbeRecord, extra="allow"):
    """Of a probe that this runner does not have: kept as it is."""


def _probe_record(data: object) -> object:
    if not isinstance(data, dict):
        return data
    probe = probe_of(data.get("probe"))
    try:
        return (probe.record if probe else UnknownRecord).model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


class Sharing(Document):
    """How trials shared the machine, or the GPU."""

    at_once: int
    """So many ran at once at most."""
    memory_bytes: int | None = None
    """Of a GPU, as the first trial took it; unknown where no GPU is used or the driver does not tell."""
    repeated: str | None = None
    """What a trial beside others did that was not expected: all that count were then repeated, without others."""
    odd: Trial | None = None
    """That trial, where there was one; not in evidence from before it was kept."""


class Gpu(Document):
    """One GPU as the environment sees it. Memory in bytes."""

    name: str
    compute_capability: str
    memory_bytes: Bytes | None = None
    driver: str | None = None


class Strange(Document):
    """Something that neither the lock nor the standard library brought, or not like that."""

    package: str | None = None
    """The package that it is about; None for what acts on all that a trial runs."""
    text: str


class Content(Document, extra="ignore"):  # older evidence has a digest over the files' sizes and times, too
    """The files of all packages, compared with the hashes that came with them."""

    files: int
    strange: list[Strange] = Field(default_factory=list)


class Attestation(Document):
    """What is really there, taken by a script run inside the environment, with a trial's variables and directory."""

    python: str
    platform: str
    glibc: str | None = None
    os: str | None = None
    """Such as "Debian GNU/Linux 12 (bookworm) (x86_64)"; None in evidence from before it was recorded."""
    cpu: str | None = None
    cpus: int | None = None
    """How many a process may use."""
    packages: dict[str, str] = Field(default_factory=dict)
    strange: list[Strange] = Field(default_factory=list)
    """On the path, among the variables, in the trial's directory."""
    content: Content | None = None
    """None where files were not compared, as in evidence from before they were."""
    cuda_driver: str | None = None
    """CUDA version the driver supports, such as "13.0"."""
    driver: str | None = None
    gpus: list[Gpu] = Field(default_factory=list)


class ImageFacts(Document):
    """The image that trials ran in. Size in bytes."""

    name: str
    id: str
    size_bytes: Bytes
    base: str | None = None
    digest: str | None = None
    """By which a registry has it, if it was pulled from there or pushed."""


class EnvironmentFacts(Document):
    """The declared environment, what was found in it, and each difference between the two."""

    name: str
    grade: Grade
    image: str
    python: str
    requirements: list[str]
    variant_requirements: dict[Variant, list[str]] = Field(default_factory=dict)
    sources: dict[Variant, list[SourceFile]] = Field(default_factory=dict)
    """Upstream's own files that each variant had."""
    build: list[str] = Field(default_factory=list)
    without_dependencies: list[str] = Field(default_factory=list)
    only_files: list[str] = Field(default_factory=list)
    """As in the manifest."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Of every trial, as the manifest has them."""
    locks: dict[str, str] = Field(default_factory=dict)
    """Lock file name -> sha256 of its text."""
    attestation: Attestation | None = None
    fixed_attestation: Attestation | None = None
    """Of the environment of fixed, where that is another one."""
    loaded: dict[Variant, list[str]] = Field(default_factory=dict)
    """Paths of the CUDA libraries that trials were seen to have loaded."""
    drift: list[str] = Field(default_factory=list)
    """Each difference from what is locked; those that the failure can depend on come first."""
    aside: int = 0
    """How many of them, at the end, the failure can hardly depend on."""

    @property
    def exact(self) -> bool:
        """Whether every package has its locked version and its own files, and nothing else was there."""
        attested = [each for each in (self.attestation, self.fixed_attestation) if each]
        return self.by_version and all(each.content for each in attested)

    @property
    def by_version(self) -> bool:
        """Whether no difference was found, even if nobody looked at files."""
        return self.attestation is not None and not self.drift

    @property
    def relevant_drift(self) -> list[str]:
        """What the failure can depend on: its own pins, torch, triton, nvidia-*, what acts on all, Python's minor."""
        return self.drift[: len(self.drift) - self.aside]

    @property
    def other_drift(self) -> list[str]:
        return self.drift[len(self.drift) - self.aside :]


class EngineFacts(Document):
    name: str
    version: str
    isolation: list[str]
    gpu_access: GpuAccess | None = None
    image: ImageFacts | None = None


class UpstreamFacts(Document):
    project: str
    status: Literal["fixed", "open"]
    issue: str | None = None
    introduced: str | None = None
    fixed: str | None = None
    links: list[str] = Field(default_factory=list)


class CaseFacts(Document):
    """What the report needs of the manifest and the scripts, as they were when the trials ran."""

    id: str
    title: str
    failure: str
    provenance: str
    upstream: UpstreamFacts
    signature: dict[Variant, list[str]]
    """For each variant the expectation in readable lines, such as "exception: builtins.ValueError"."""
    fix_diff: str
    """Unified diff from repro.py to fixed.py."""
    because: str | None = None
    """Why the scripts differ by more than a fix, as the manifest says."""
    digest: str
    """sha256 over the manifest and scripts."""


class Durations(Document):
    """Seconds: getting the environment ready, and all trials together."""

    prepare_s: Seconds
    trials_s: Seconds
    total_s: Seconds


class Evidence(Document):
    """One run of one case in one environment on one machine."""

    what = "evidence"
    remedy = "run the case again, or remove the file"

    schema_version: Literal[1] = 1
    case: CaseFacts
    environment: EnvironmentFacts
    engine: EngineFacts
    verdict: Verdict
    reasons: list[str]
    """Why this verdict, in sentences for a person; the first is the report's first line."""
    rates: dict[Variant, Rate] = Field(default_factory=dict)
    demand: Demand | None = None
    trials: list[Trial] = Field(default_factory=list)
    sharing: Sharing | None = None
    """None where one ran after the other."""
    dropped: str | None = None
    """Only in older evidence: why its forked trials do not count."""
    short: bool = False
    """A person asked for fewer trials than the case does."""
    sanitized: list[Trial] = Field(default_factory=list)
    """Trials under compute-sanitizer, where the case declares a finding: counted apart from `trials`, see `rates`."""
    probes: list[Annotated[SerializeAsAny[ProbeRecord], BeforeValidator(_probe_record)]] = Field(default_factory=list)
    """Instrumented runs of repro after the verdict. They explain it, and never decide it."""
    started: Moment
    durations: Durations
    command: str
    """The exact command that does it again."""
    runner: str
    """Version of the runner, with the git revision where there is one."""
    semantics: int = 0
    """`gpu_casebook.revision.SEMANTICS` of that runner; 0 where it did not say so yet."""

    @property
    def device(self) -> str:
        """What the trials ran on: "NVIDIA H200", or "CPU"."""
        gpus = self.environment.attestation.gpus if self.environment.attestation else []
        return gpus[0].name if gpus and self.environment.grade is Grade.HARDWARE else "CPU"

    @property
    def origins(self) -> dict[str, list[str]]:
        """Only of older evidence: how forked trials were started, and of which variants."""
        found = dict.fromkeys((trial.origin, trial.variant) for trial in self.trials if trial.origin)
        return {how: [variant for other, variant in found if other == how] for how, _ in found}

    def trials_of(self, variant: Variant) -> Sequence[Trial]:
        return [trial for trial in self.trials if trial.variant is variant]

    def write(self, path: Path, *, sync: bool = True) -> None:
        super().write(path, sync=sync)


def evidence_path(reports: Path, evidence: Evidence) -> Path:
    """Where the evidence of this case, environment, engine and device lies; a later run of the same replaces it.

    A run in an environment that drifted never replaces one in the locked environment.
    """
    parts = [evidence.environment.name, evidence.engine.name, evidence.device]
    name = ".".join(map(slug, [*parts, *(["drifted"] if evidence.environment.drift else [])]))
    return reports / "evidence" / slug(evidence.case.id) / f"{name}.json"


def keep(reports: Path, evidence: Evidence) -> str | None:
    """Write evidence where it belongs, and return None.

    Where a short run would replace one that has more trials, that one stays; return a line that says so.
    """
    path = evidence_path(reports, evidence)
    with suppress(CasebookError):  # one that can't be read is worth nothing
        if evidence.short and path.is_file() and (there := len(load(path).trials)) > len(evidence.trials):
            return f"not kept: fewer trials than the case asks for; {path.name} has {there}, and stays"
    evidence.write(path)
    return None


def evidence_files(reports: Path, case: str | None = None, environment: str | None = None) -> list[Path]:
    """Return the files of all evidence, of a case's, or of a case's in one environment; none that is half written."""
    directory = slug(case) if case else "*"
    name = f"{slug(environment)}.[!.]*.json" if environment else "[!.]*.json"
    return sorted(reports.glob(f"evidence/{directory}/{name}"))


load = Evidence.read


def slug(text: str) -> str:
    """Lower case, digits and single dashes: a part of a file name that has no dot in it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
