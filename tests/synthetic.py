"""Trials that were never run: each letter of a text is one, and says how it went."""

from collections.abc import Iterable
from functools import cache

from failure_signature.kinds import Variant
from failure_signature.trials import Observation, Outcome, Trial

CRASHED = Observation(exit_status=1, exception="RuntimeError", message="off by two")
OTHER = Observation(exit_status=1, exception="ModuleNotFoundError", message="No module named 'triton'")
RAN = Observation(exit_status=0)


@cache
def trial(variant: Variant, number: int, letter: str) -> Trial:
    """G as expected, P otherwise though it ran to its end, W otherwise by another failure, I the machine's fault.

    A small letter is a trial as expected that prints itself as its digest `out`.
    """
    outcome = {"P": Outcome.OTHERWISE, "W": Outcome.OTHERWISE, "I": Outcome.INFRA}.get(letter, Outcome.AS_EXPECTED)
    seen = {"P": RAN, "W": OTHER, "I": OTHER}.get(letter, CRASHED if variant is Variant.REPRO else RAN)
    if letter.islower():
        seen = Observation(exit_status=0, digests={"out": f"sha256:{ord(letter):08x}"})
    return Trial(
        variant=variant,
        number=number,
        outcome=outcome,
        mismatches=["exit status: as in the test"] if outcome is Outcome.OTHERWISE else [],
        infra="the disk is full" if outcome is Outcome.INFRA else None,
        observation=seen,
        duration_s=1.0,
        stdout="",
        stderr="",
    )


def trials(repro: Iterable[str], fixed: Iterable[str] = "") -> list[Trial]:
    texts = {Variant.REPRO: repro, Variant.FIXED: fixed}
    return [trial(variant, number, letter) for variant in Variant for number, letter in enumerate(texts[variant], 1)]
