"""The options of a run of a case. Each stands here once, with its flag, its help, and where it counts."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_casebook.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An option on the command line."""

    name: str
    """As Typer declares it: "--trials", or "--probes/--no-probes"."""
    help: str
    metavar: str | None = None
    min: int | None = None
    repeated: bool = True
    """Whether the command that does the same again has it. Options about one machine (which GPU) are left out of it."""
    corpus: bool = False
    """Whether a run of the corpus takes it, for all of its jobs."""

    def words(self, value: object) -> list[str]:
        """Return the option with a value, as in a command."""
        if isinstance(value, tuple):
            return [word for each in value for word in self.words(each)]
        on, _, off = self.name.partition("/")
        if isinstance(value, bool):
            return [on if value else off]
        return [on, f"{value:g}" if isinstance(value, float) else str(value)]


def _option(name: str, help: str, default: Any = None, **more: Any) -> Any:  # noqa: A002 as Typer spells it
    return field(default=default, metadata={"flag": Flag(name=name, help=help, **more)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for. None means: as the case says."""

    environment: str | None = _option(
        "--environment", "One of the case's environments. Without it: the first whose hardware is here."
    )
    image: str | None = _option(
        "--image", "Run in this image as it stands (docker). What differs from the lock is listed.", corpus=True
    )
    over: Sequence[str] = _option(
        "--with",
        "Put this wheel, or this version and what it needs, over what the case locks; drift tells.",
        default=(),
        metavar="WHEEL|NAME==VERSION",
    )
    pre: bool = _option("--pre", "Of --with, releases before the final one too.", default=False)
    trials: int | None = _option(
        "--trials", "Trials of each variant. Without it: as the case says.", min=1, corpus=True
    )
    timeout_s: float | None = _option(
        "--timeout", "For one trial: 90s, 2m. Without it: as the case says.", metavar="DURATION", corpus=True
    )
    gpus: Sequence[int] | None = _option(
        "--gpu",
        "Which GPUs, by index. Without it: those that suit and have the most free memory.",
        metavar="N[,N]",
        repeated=False,
    )
    at_once: int | None = _option(
        "--at-once",
        "Trials at once at most. Without it: as the case and the machine allow. 1: one after the other.",
        metavar="N",
        min=1,
        repeated=False,
        corpus=True,
    )
    keep: bool = _option("--keep", "Leave what the trials ran in, and say where it is.", default=False, repeated=False)
    probes: bool = _option(
        "--probes/--no-probes", "Whether to look at the failure with instruments afterwards.", default=True, corpus=True
    )

    def words(self, engine: str) -> list[str]:
        """Return the engine and the options that are not the default, as in a command."""
        given = {each: getattr(self, each) for each in FLAGS}
        words = [] if self.environment is None else FLAGS["environment"].words(given.pop("environment"))
        words += ["--engine", engine]
        for name, value in given.items():
            if FLAGS[name].repeated and value != DEFAULTS[name]:
                words += FLAGS[name].words(value)
        return words


FLAGS: dict[str, Flag] = {each.name: each.metadata["flag"] for each in dataclasses.fields(Options)}
"""By the field's name."""
DEFAULTS: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(Options)}
CORPUS = [name for name, flag in FLAGS.items() if flag.corpus]
"""Fields that a run of the corpus takes."""


def check_over(over: Sequence[str]) -> None:
    """Raise UsageError unless each of these is the file of a wheel or a requirement."""
    # Imported where they are needed: every command loads this module, and with these pydantic.
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    from gpu_casebook.pins import is_wheel  # noqa: PLC0415

    for each in over:
        wrong = False
        try:
            if is_wheel(each):
                parse_wheel_filename(Path(each).name)
                Path(each).open("rb").close()
            else:
                wrong = bool(Requirement(each).url)
        except InvalidWheelFilename:
            remedy = "build one: pip wheel --no-deps REQUIREMENT"
            raise UsageError(f"--with {each}: not the name of a wheel; {remedy}") from None
        except InvalidRequirement:
            wrong = True
        except OSError as error:
            raise UsageError(f"--with {each}: can't be read: {error.strerror}") from None
        if wrong:
            raise UsageError(f"--with {each}: neither a wheel's file, *.whl, nor a requirement such as triton==3.7.0")
