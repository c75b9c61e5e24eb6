"""Instrumented runs after the verdict. They explain the verdict and never decide it.

A probe is a plug-in: an object that satisfies `Probe`. Its module also has the type of the record that it leaves in the
evidence. `gpu_casebook.probe_registry` has its name.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from failure_signature.judging.description import SourceLine
from failure_signature.kinds import Failure, Grade, Variant
from failure_signature.result import TrialResult
from failure_signature.text import seconds
from failure_signature.trials import Outcome, Trial
from gpu_casebook import probe_registry
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.guard import Guard
from gpu_casebook.evidence import ProbeRecord, UnknownRecord
from gpu_casebook.manifest.model import Manifest
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.trials import at_once
from gpu_casebook.trial import Limits, TrialRequest

PROBE_SLOWDOWN = 10.0
"""A probe may take this many times as long as the longest trial of repro: at least LEAST_S, at most MOST_S."""
LEAST_S, MOST_S = 60.0, 600.0

_GUEST_LIMITS = Limits(timeout_s=120.0, output_bytes=4 * 2**20)

_NO_KERNEL_ENDS = {Failure.HANG, Failure.COMPILE_ERROR}


@dataclass(frozen=True)
class Bench:
    """Runs a case's scripts under instruments, in the environments that its ordinary trials had."""

    plan: Plan
    guard: Guard
    console: Console
    environments: Mapping[Variant, Prepared]
    _answers: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def at_once(self) -> int:
        """How many instrumented runs may go on at once: as many as trials of the case."""
        return at_once(self.plan, self.guard.engine)

    def run(
        self, variant: Variant, limits: Limits, variables: Mapping[str, str], wrapper: Sequence[str] = ()
    ) -> TrialResult:
        """Run a variant's script once, with more variables or below a wrapper. Raises as engines do."""
        request = TrialRequest(
            files=self.plan.case.payload(),
            arguments=[f"{variant.value}.py"],
            limits=limits,
            variables={**self.plan.spec.variables, **variables},
            gpus=self.plan.gpus,
            wrapper=wrapper,
        )
        return self.guard.run(self.environments[variant], request)

    def ask(self, variant: Variant, guest: Path) -> str:
        """Return what a script of `gpu_casebook.guest` prints in a variant's environment; it runs once in each."""
        prepared = self.environments[variant]
        key = prepared.key, guest.name
        with self._asking:
            if key not in self._answers:
                files = {guest.name: guest.read_bytes()}
                request = TrialRequest(files=files, arguments=[guest.name], limits=_GUEST_LIMITS)
                self._answers[key] = self.guard.look(prepared, request).stdout
            return self._answers[key]


@dataclass(frozen=True)
class Words:
    """What a record says, for a report: either a table and a conclusion, or a title and lines."""

    title: str = ""
    lines: Sequence[str] = ()
    raw: str = ""  # what the instrument printed
    instrument: str = "the probe"
    header: tuple[str, str, str] = ("", "", "")
    rows: Sequence[tuple[str, str, str]] = ()  # text, and two cells of code
    conclusion: str = ""
    # For the headline of a page:
    launched: SourceLine | None = None  # the line of the failing launch
    moved: bool = False  # without the probe, the error shows at another line
    raised: bool = False  # without the probe, the error shows at that line
    gone_with: str = ""  # the setting with which the error is gone


class Probe(Protocol):
    """One way to look at repro under an instrument."""

    @property
    def record(self) -> type[ProbeRecord]:
        """The type of its records in the evidence; the default of the field `probe` is the record's kind."""

    def suggested(self, failure: Failure) -> bool:
        """Return whether to run it for this kind of failure if the manifest names no probes."""

    def applies(self, plan: Plan, trials: Sequence[Trial], sanitized: Sequence[Trial]) -> bool:
        """Return whether it can say anything about these ordinary and these sanitized trials."""

    def run(self, bench: Bench, trials: Sequence[Trial], limits: Limits) -> Iterator[ProbeRecord]:
        """Run repro under the instrument. If that goes wrong, the record has a note on it, and no error is raised."""

    def words(self, record: ProbeRecord) -> Words:
        """Return what a record of this probe says."""


def chosen(manifest: Manifest) -> dict[str, Probe]:
    """Return the probes that the manifest names, else those that the kind of failure suggests, by name."""
    if manifest.probes is not None:
        return {name: probe_registry.probe(name) for name in manifest.probes}
    every = {name: probe_registry.probe(name) for name in probe_registry.all_probes()}
    return {name: found for name, found in every.items() if found.suggested(manifest.failure)}


def run_probes(bench: Bench, trials: Sequence[Trial], sanitized: Sequence[Trial]) -> list[ProbeRecord]:
    """Run the probes that apply to these trials. Ctrl-C ends the probes; the records so far are returned."""
    plan, records = bench.plan, list[ProbeRecord]()
    repro = [trial.duration_s for trial in trials if trial.variant is Variant.REPRO]
    limits = replace(plan.limits, timeout_s=min(MOST_S, max(LEAST_S, PROBE_SLOWDOWN * max(repro, default=0.0))))
    found = {name: each for name, each in chosen(plan.case.manifest).items() if each.applies(plan, trials, sanitized)}
    runs = [partial(lambda each: list(each.run(bench, trials, limits)), each) for each in found.values()]
    try:
        with bench.console.task(f"{plan.case.id} probes", len(runs), lambda: ", ".join(found)) as advance:
            for name, made in zip(found, bench.guard.side_by_side(runs, bench.at_once), strict=True):
                records += made
                advance(f"{name} ({seconds(sum(record.duration_s for record in made))})")
    except KeyboardInterrupt:
        bench.console.say("interrupted while probing: the verdict stands, without the probes still to come")
    return records


def ran_kernels(plan: Plan, trials: Sequence[Trial]) -> bool:
    """Return whether repro ran on a GPU and ended by itself, and kernels can cause the declared kind of failure."""
    ran = [trial for trial in trials if trial.variant is Variant.REPRO and trial.outcome is not Outcome.INFRA]
    on_device = bool(plan.gpus) and plan.spec.grade is Grade.HARDWARE
    ended = bool(ran) and not any(trial.observation.timed_out or trial.observation.hung for trial in ran)
    return on_device and ended and plan.case.manifest.failure not in _NO_KERNEL_ENDS


def words(record: ProbeRecord) -> Words:
    """Return what a record says, for a report; the plain data if this runner does not have its probe."""
    if not isinstance(record, UnknownRecord):
        probe: Probe = probe_registry.probe_of(record.probe)
        return probe.words(record)
    title = f"{record.probe}, a probe that this runner does not have"
    return Words(title=title, lines=[record.note] if record.note else [], raw=record.model_dump_json(indent=1))
