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


class Grade(StrEnum):
    HARDWARE = "hardware"
    SIMULATED = "simulated"


class Variant(StrEnum):
    REPRO = "repro"
    FIXED = "fixed"
