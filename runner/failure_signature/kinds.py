"""The kinds of failures, the grades of evidence, and the variants of a case. Light: pytest loads this in every run."""

from enum import StrEnum


class Failure(StrEnum):
    COMPILE_ERROR = "compile-error"
    ILLEGAL_ACCESS = "illegal-access"
    WRONG_NUMBERS = "wrong-numbers"
    NON_FINITE = "non-finite"
    HANG = "hang"
    RACE = "race"
    LEAK = "leak"
    LAUNCH_ERROR = "launch-error"
    CRASH = "crash"
    EXCEPTION = "exception"


class Area(StrEnum):
    """What breaks; pages over many cases are grouped by it."""

    TRAINING = "training"
    KERNELS = "kernels"
    COMPILER = "compiler"
    DISTRIBUTED = "distributed"
    DATA = "data"
    SERVING = "serving"

    @property
    def heading(self) -> str:
        return {"training": "Training loop", "kernels": "Attention and kernels"}.get(self, self.capitalize())


class Grade(StrEnum):
    HARDWARE = "hardware"
    SIMULATED = "simulated"


class Variant(StrEnum):
    REPRO = "repro"
    FIXED = "fixed"
