"""What a failure looks like, and whether a run shows it. Pure: no I/O, no container, no GPU.

    from failure_signature import Expectation, Sign, Signature, ended

    oom = Signature(Expectation(exception="torch.OutOfMemoryError"))
    oom.read(ended(done.returncode, done.stdout, done.stderr)).sign is Sign.SHOWS

What stands in `__all__` is the API, which docs/signature.md shows. It is imported when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from failure_signature.expectation import Expectation
    from failure_signature.judging.signature import Reading, Sign, Signature, ended
    from failure_signature.result import TrialResult

__all__ = ["Expectation", "Reading", "Sign", "Signature", "TrialResult", "ended"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from failure_signature.judging import signature  # noqa: PLC0415 the kinds of failure are read without it

    return getattr(signature, name)
