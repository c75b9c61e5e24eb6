"""Runs what is instrumented: the sanitized trials of a case that declares a finding, and the probes after the verdict.

A sanitized trial belongs to the verdict (see `judging.sanitized`). A probe does not: it is bounded in time, and
where it fails, that is a note in the evidence.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Grade, LaunchBlockingProbe, Outcome, SanitizerProbe, SanitizerReport, Trial, Variant
from gpu_casebook.guest import locate
from gpu_casebook.judging import launch_blocking
from gpu_casebook.judging.expectation import observe
from gpu_casebook.judging.sanitized import TRIALS, judge_fixed, judge_repro, report
from gpu_casebook.manifest.model import Failure, SanitizerFinding
from gpu_casebook.reading import sanitizer
from gpu_casebook.reading.findings import Tool, telling
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.record import Place
from gpu_casebook.trial import Limits, TrialRequest, TrialResult

Probe = SanitizerProbe | LaunchBlockingProbe

NOT_THERE = f"{sanitizer.EXECUTABLE} is not in this environment"

SLOWER = 5.0
"""A sanitized trial may take so many times what an ordinary one may."""
PROBE_SLOWER = 10.0
"""A probe may take so many times what the longest trial of repro took; but it gets PROBE_S at least, MOST_S at most."""
PROBE_S, MOST_S = 60.0, 600.0

_LOCATE_LIMITS = Limits(timeout_s=120.0)
_BLIND = {Failure.HANG, Failure.COMPILE_ERROR}
"""Kinds of failure in which no kernel runs to its end."""
_BESIDES = {
    Failure.RACE: (Tool.RACECHECK,),
    Failure.WRONG_NUMBERS: (Tool.INITCHECK,),
    Failure.NON_FINITE: (Tool.INITCHECK,),
}


class Program(NamedTuple):
    """compute-sanitizer in an environment."""

    path: str
    version: str


@dataclass(frozen=True)
class Instruments:
    """Runs one case's scripts under instruments, in the environments that its ordinary trials had."""

    plan: Plan
    engine: Engine
    console: Console
    places: Mapping[Variant, Place]
    _located: dict[str, Program | None] = field(default_factory=dict, init=False)

    def sanitized(self) -> list[Trial]:
        """Trials under the tool whose finding the case declares; none where it declares none."""
        declared = self.plan.case.expectation(self.plan.environment, Variant.REPRO).sanitizer
        if declared is None:
            return []
        trials = []
        with self.console.task(f"{self.plan.case.id} under {declared.tool}", len(Variant) * TRIALS) as advance:
            for variant in Variant:
                for number in range(1, TRIALS + 1):
                    trials.append(self._sanitized(variant, number, declared))
                    advance(_told(trials[-1]))
        return trials

    def _sanitized(self, variant: Variant, number: int, declared: SanitizerFinding) -> Trial:
        program = self._locate(self.places[variant].prepared)
        limits = replace(self.plan.limits, timeout_s=self.plan.limits.timeout_s * SLOWER)
        result, cached = self._under(declared.tool, program, variant, limits)
        version, seen = program and program.version, observe(result)
        if variant is Variant.REPRO:
            found = report(result, declared.tool, version, declared, cached=cached)
            judgement = judge_repro(declared, found)
        else:
            found = report(result, declared.tool, version, None, cached=cached)
            judgement = judge_fixed(self.plan.case.expectation(self.plan.environment, variant), found, result, seen)
        return Trial(
            variant=variant,
            number=number,
            outcome=judgement.outcome,
            mismatches=list(judgement.mismatches),
            infra=judgement.infra,
            observation=seen,
            duration_s=result.duration_s,
            stdout=result.stdout,
            stderr=result.stderr,
            sanitizer=found,
        )

    def probes(self, trials: Sequence[Trial], sanitized: Sequence[Trial]) -> list[Probe]:
        """What explains the verdict on these trials. Ctrl-C ends the probes, and not what is known by then."""
        found: list[Probe] = []
        if not self.plan.options.probes or not worth_probing(self.plan, trials):
            return found
        try:
            found.extend(self._probes(trials, [trial.instrument for trial in sanitized if trial.instrument]))
        except KeyboardInterrupt:
            self.console.say("interrupted while probing: the verdict stands, without the probes still to come")
        return found

    def _probes(self, trials: Sequence[Trial], done: Sequence[Tool]) -> Iterator[Probe]:
        longest = max(trial.duration_s for trial in trials if trial.variant is Variant.REPRO)
        limits = replace(self.plan.limits, timeout_s=min(MOST_S, max(PROBE_S, PROBE_SLOWER * longest)))
        failing = launch_blocking.failing(trials)
        for tool in tools(self.plan):
            if tool not in done:
                yield (found := self._sanitizer_probe(tool, Variant.REPRO, limits))
                if failing is None and telling(found.report.findings):
                    yield self._sanitizer_probe(tool, Variant.FIXED, limits)
        if failing:
            with self.console.step("probing: repro with CUDA_LAUNCH_BLOCKING=1"):
                yield self._launch_blocking_probe(failing, limits)

    def _sanitizer_probe(self, tool: Tool, variant: Variant, limits: Limits) -> SanitizerProbe:
        try:
            with self.console.step(f"probing: {variant} under {tool}"):
                program = self._locate(self.places[variant].prepared)
                result, cached = self._under(tool, program, variant, limits)
        except (CasebookError, OSError) as error:
            return SanitizerProbe(variant=variant, report=SanitizerReport(tool=tool), note=str(error))
        found = report(result, tool, program and program.version, None, cached=cached)
        return SanitizerProbe(
            variant=variant,
            report=found,
            note=found.missing,
            duration_s=result.duration_s,
            stdout=result.stdout,
            stderr=result.stderr,
        )

    def _launch_blocking_probe(self, plain: Trial, limits: Limits) -> LaunchBlockingProbe:
        request = replace(self._request(Variant.REPRO, limits), variables=self._variables(launch_blocking.VARIABLES))
        try:
            result = self.engine.run(self.places[Variant.REPRO].prepared, request)
        except (CasebookError, OSError) as error:
            return LaunchBlockingProbe(error=plain.observation.cuda_error or "", note=str(error))
        return launch_blocking.probe(plain, result)

    def _under(self, tool: Tool, program: Program | None, variant: Variant, limits: Limits) -> tuple[TrialResult, bool]:
        """What came of it, and whether PyTorch's allocator had to keep its cache for it."""
        if program is None:
            return TrialResult(stdout="", stderr="", duration_s=0.0, infra=NOT_THERE), False
        _, *options = sanitizer.command(tool, ())
        request = replace(self._request(variant, limits), wrapper=[program.path, *options])
        place = self.places[variant].prepared
        uncached = self.engine.run(place, replace(request, variables=self._variables(sanitizer.VARIABLES)))
        if not sanitizer.at_odds_with_capture(f"{uncached.stdout}\n{uncached.stderr}"):
            return uncached, False
        return self.engine.run(place, replace(request, variables=self._variables({}))), True

    def _request(self, variant: Variant, limits: Limits) -> TrialRequest:
        return TrialRequest(
            files=self.plan.case.payload(),
            arguments=[f"{variant.value}.py"],
            limits=limits,
            gpus=self.plan.gpus,
        )

    def _variables(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**self.plan.spec.variables, **more}

    def _locate(self, prepared: Prepared) -> Program | None:
        """compute-sanitizer in that environment; None where there is none that runs."""
        if prepared.key not in self._located:
            script = Path(locate.__file__)
            files = {script.name: script.read_bytes()}
            request = TrialRequest(files=files, arguments=[script.name], limits=_LOCATE_LIMITS)
            self._located[prepared.key] = _program(self.engine.run(prepared, request).stdout)
        return self._located[prepared.key]


def tools(plan: Plan) -> Sequence[Tool]:
    """What looks at repro after the verdict: what the manifest asks for, else what the kind of failure suggests."""
    manifest = plan.case.manifest
    if manifest.probes is not None:
        return list(dict.fromkeys(manifest.probes))
    return [Tool.MEMCHECK, *_BESIDES.get(manifest.failure, ())]


def worth_probing(plan: Plan, trials: Sequence[Trial]) -> bool:
    """Whether repro ran kernels on a GPU, to an end."""
    ran = [trial for trial in trials if trial.variant is Variant.REPRO and trial.outcome is not Outcome.INFRA]
    on_device = bool(plan.gpus) and plan.spec.grade is Grade.HARDWARE
    ended = bool(ran) and not any(trial.observation.timed_out or trial.observation.hung for trial in ran)
    return on_device and ended and plan.case.manifest.failure not in _BLIND


def _program(said: str) -> Program | None:
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(said)
        return Program(str(found["path"]), str(found["version"]))
    return None


def _told(trial: Trial) -> str:
    why = trial.infra or next(iter(trial.mismatches), "")
    told = f"{trial.variant} under {trial.instrument}: {trial.outcome} ({trial.duration_s:.1f} s)"
    return f"{told}: {why}" if why else told
