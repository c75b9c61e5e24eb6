"""The Python API: load a case, run it, get its evidence. `gpu_casebook` has these names; docs/api.md shows them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gpu_casebook.console import Console
from gpu_casebook.engines import registry
from gpu_casebook.errors import SkippedError, UsageError
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import Case, discover, find, known_images
from gpu_casebook.places import public
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped


@dataclass(frozen=True)
class LoadedCase(Case):
    """A case that can be run: `id`, `directory`, `manifest`, `script()`, `fix_diff()` and the rest of `Case`."""

    corpus: Path
    """The directory that holds cases/."""

    def run(
        self,
        environment: str | None = None,
        engine: str | None = None,
        *,
        trials: int | None = None,
        timeout_s: float | None = None,
        gpus: Sequence[int] | None = None,
        image: str | None = None,
        over: Sequence[str] = (),
        probes: bool = True,
        progress: TextIO | None = None,
    ) -> Evidence:
        """Run both scripts until the verdict is settled, and return the evidence, as `casebook case` does.

        Without `environment`: the first whose hardware is here; without `engine`: the best that answers. `timeout_s` is
        for one trial, in seconds; `gpus` are indices; `over` are wheels or versions put over what is locked. What is
        being done goes to `progress`. No report is written: `Evidence.write(path)` saves the evidence.

        Raises SkippedError where this machine lacks the hardware, and CasebookError for all else that keeps the case
        from having a verdict: UsageError, EngineError, BuildError, MachineError, ManifestError.
        """
        options = Options(
            environment=environment,
            trials=trials,
            timeout_s=timeout_s,
            gpus=gpus,
            image=image,
            over=tuple(over),
            probes=probes,
        )
        if environment is not None:
            self.environment(environment)
        console = Console(progress or io.StringIO())
        with registry.choose(engine, self.corpus, console.say) as chosen:
            result = run_case(self, options, chosen, console)
        if isinstance(result, Skipped):
            raise SkippedError(self.id, result.reasons)
        return result


def load(case: str, corpus: Path | str | None = None) -> LoadedCase:
    """Return a case by its id: of `corpus`, a directory with cases/, or of the public one.

    Raises UsageError where there is none of this id, ManifestError where it is not in order.
    """
    top = _top(corpus)
    found = find(top, case, known_images(top))
    return LoadedCase(found.directory, found.manifest, top)


def cases(corpus: Path | str | None = None) -> list[str]:
    """Return the ids of all cases of `corpus`, or of the public one, sorted."""
    return discover(_top(corpus))


def _top(corpus: Path | str | None) -> Path:
    top = public() if corpus is None else Path(corpus).resolve()
    if not (top / "cases").is_dir():
        raise UsageError(f"no cases/ in {top}")
    return top
