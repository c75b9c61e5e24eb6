"""A case as a task: what whoever is to fix it gets to read."""

from casebook_workbench.grade.graded import Graded

_STATEMENT = """\
# {title}

What users see: {symptom}.

{demand}

The defect is in a package: {requirements}. These releases stay. Work around it in `subject.py`: only {may_change} may
be changed, and imports and functions may be added. It must still use {keeps}.

`solve` is called {rounds} times, each time with what `inputs` draws from a seed that is chosen when the fix is graded.
What it hands out is compared with a reference that is computed elsewhere ({tolerance}). What it prints
counts for nothing. A call may take at most {slower:g} times as long as with the fix that is known{growth}.
"""


def statement(graded: Graded) -> str:
    """Return the task in Markdown."""
    known, manifest = graded.grading, graded.case.manifest
    tolerance = f"numbers within {known.relative:g} of it and {known.absolute:g}"
    growth = f", and its process may grow by {known.growth / 1e6:.3g} MB with each" if known.growth is not None else ""
    return _STATEMENT.format(
        title=manifest.title,
        symptom=(manifest.symptom or manifest.title).rstrip("."),
        demand=graded.demand,
        requirements=", ".join(f"`{each}`" for each in graded.requirements),
        may_change=" and ".join(f"`{each}`" for each in known.may_change),
        keeps=" and ".join(f"`{each}`" for each in known.keeps),
        rounds=known.rounds,
        tolerance=tolerance if known.relative or known.absolute else "which it must equal",
        slower=known.slower,
        growth=growth,
    ).rstrip()
