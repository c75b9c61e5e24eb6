"""What instruments work with: a case's scripts in the environments that its ordinary trials had."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.guard import Guard
from gpu_casebook.evidence import Variant
from gpu_casebook.run.plan import Plan
from gpu_casebook.trial import Limits, TrialRequest, TrialResult

_GUEST_LIMITS = Limits(timeout_s=120.0, output_bytes=4 * 2**20)


@dataclass(frozen=True)
class Bench:
    plan: Plan
    guard: Guard
    console: Console
    environments: Mapping[Variant, Prepared]
    _answers: dict[tuple[str, str], str] = field(default_factory=dict, init=False)

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
        """What a script of `gpu_casebook.guest` prints in a variant's environment; it is run once in each."""
        prepared = self.environments[variant]
        key = prepared.key, guest.name
        if key not in self._answers:
            files = {guest.name: guest.read_bytes()}
            request = TrialRequest(files=files, arguments=[guest.name], limits=_GUEST_LIMITS)
            self._answers[key] = self.guard.run(prepared, request).stdout
        return self._answers[key]
