"""What the terminal says of a run at its end. Evidence in, lines out."""

from gpu_casebook.evidence import Evidence
from gpu_casebook.report.sentence import headline, plain
from gpu_casebook.report.words import cautions
from gpu_casebook.text import one_line

LINE_LIMIT = 400
DRIFT_SHOWN = 5


def summary(run: Evidence) -> list[str]:
    """Plain lines: the verdict with its headline first, then the other reasons and what lowers the worth."""
    where = f"environment {run.environment.name} on {run.device}"
    first = f"{run.verdict}: {run.case.id}, {where}"
    drift = [f"drift: {line}" for line in run.environment.drift[:DRIFT_SHOWN]]
    if len(run.environment.drift) > DRIFT_SHOWN:
        drift.append(f"drift: {len(run.environment.drift) - DRIFT_SHOWN} more, which the report lists")
    details = [plain(headline(run)), *run.reasons[1:], *cautions(run.environment), *drift]
    return [one_line(first, LINE_LIMIT), *(f"  {one_line(line, LINE_LIMIT)}" for line in details)]
