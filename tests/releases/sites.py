"""A site whose versions fail as a test says, and a record to begin with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from casebook_workbench.releases.environments import Changes, TriedEnvironment, Unusable
from casebook_workbench.releases.records import Bisection, Question
from failure_signature.judging.signature import Reading, Sign
from failure_signature.kinds import Variant
from gpu_casebook.errors import MachineError

THEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SHOWS = Reading(Sign.SHOWS, "ValueError: off by two")
QUIET = Reading(Sign.ABSENT, "ran to its end")
OTHER = Reading(Sign.OTHER, "ImportError: no such name")
SPOILED = Reading(Sign.UNKNOWN, "the container did not start", infra="the container did not start")
LETTERS = {"F": SHOWS, ".": QUIET, "E": OTHER, "!": SPOILED}

Draw = Callable[[], Reading]


class FakeEnvironments:
    """`draws` has what gives a version's trials, or why it is unusable; what was asked is kept."""

    def __init__(self, draws: Mapping[str, Draw | str]) -> None:
        self._draws = draws
        self.opened: list[str] = []
        self.trials: list[str] = []

    @contextmanager
    def at(self, changes: Changes, note: Callable[[str], None]) -> Iterator[TriedEnvironment]:
        [(package, version)] = changes.items()
        assert version
        self.opened.append(version)
        draw = self._draws[version]
        if isinstance(draw, str):
            raise Unusable(draw)

        def look() -> Reading:
            self.trials.append(version)
            found = draw()
            if found is SPOILED:
                raise MachineError(found.summary)
            return found

        yield TriedEnvironment("lock", {package: version}, look)


def always(look: Reading) -> Draw:
    return lambda: look


def in_turn(letters: str) -> Draw:
    """A trial for each letter; the last one repeats."""
    left = list(letters)
    return lambda: LETTERS[left.pop(0) if len(left) > 1 else left[0]]


def question(good: str, bad: str, alpha: float = 0.01) -> Question:
    return Question(
        case="tiny",
        package="thing",
        environment="interpreter",
        variant=Variant.REPRO,
        good=good,
        bad=bad,
        alpha=alpha,
        engine="venv",
        digest="d",
    )


def record(versions: Sequence[str], *, fixed: bool = False, alpha: float = 0.01) -> Bisection:
    ends = (versions[-1], versions[0]) if fixed else (versions[0], versions[-1])
    return Bisection(
        question=question(*ends, alpha), versions=list(versions), started=THEN, command="nox -s bisect", runner="0.1"
    )
