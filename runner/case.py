"""case.yaml -> Case: parse, validate, and point at file:line for every mistake."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from runner.bounds import Bound
from runner.evidence import Grade, Variant

MANIFEST = "case.yaml"


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


class Provenance(StrEnum):
    DISTILLED = "distilled"
    RELEASE = "release"


def _bound(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no bound; write comparisons such as '< 1e-5', in quotes")  # noqa: TRY004
    return Bound.parse(value)


BoundField = Annotated[Bound, BeforeValidator(_bound), WithJsonSchema({"type": "string"})]


class Model(BaseModel):
    """Base of all manifest parts: immutable, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Expectation(Model):
    """Everything that must hold of a trial; what is not named is not looked at.

    `exit_status` is 0 unless a failure (exception, signal, cuda_error) is declared. `message` is a regular
    expression, searched in the exception's text where an exception is declared, otherwise in both streams.
    """

    exit_status: int | None = None
    signal: str | None = None
    exception: str | None = None
    message: str | None = None
    cuda_error: str | None = None
    figures: dict[str, BoundField] = Field(default_factory=dict)


class Overrides(Model):
    """What differs in one environment from the case's own expectations, key by key."""

    repro: Expectation | None = None
    fixed: Expectation | None = None


class EnvironmentSpec(Model):
    """A named, pinned set of packages, an image, and the hardware it needs."""

    image: str
    requirements: list[str]
    python: str = "3.11"
    gpus: int = 0
    compute_capability: str | None = None
    driver: str | None = None
    grade: Grade = Grade.HARDWARE
    variables: dict[str, str] = Field(default_factory=dict)
    expect: Overrides = Field(default_factory=Overrides)


class Upstream(Model):
    project: str
    status: Literal["fixed", "open"]
    issue: str | None = None
    introduced: str | None = None
    fixed: str | None = None
    links: list[str] = Field(default_factory=list)


class VariantSpec(Model):
    """`requirements` come on top of the environment's: a release case pins the buggy and the fixed version here."""

    expect: Expectation
    requirements: list[str] = Field(default_factory=list)


class Manifest(Model):
    """case.yaml as written."""

    id: str
    title: str
    failure: Failure
    upstream: Upstream
    provenance: Provenance
    environments: dict[str, EnvironmentSpec]
    repro: VariantSpec
    fixed: VariantSpec
    timeout: float = 120.0
    trials: int = 3
    memory: int = 16 * 2**30


@dataclass(frozen=True)
class Case:
    """A manifest and the directory it describes."""

    directory: Path
    manifest: Manifest

    @property
    def id(self) -> str:
        return self.manifest.id

    def script(self, variant: Variant) -> Path:
        return self.directory / f"{variant.value}.py"

    def expectation(self, environment: str, variant: Variant) -> Expectation:
        """The variant's expectation with what this environment overrides."""
        raise NotImplementedError

    def requirements(self, environment: str, variant: Variant) -> list[str]:
        """The environment's requirements and the variant's own."""
        raise NotImplementedError

    def lock_path(self, environment: str, variant: Variant) -> Path:
        """locks/<environment>.txt, or locks/<environment>.<variant>.txt where the variants' requirements differ."""
        raise NotImplementedError
