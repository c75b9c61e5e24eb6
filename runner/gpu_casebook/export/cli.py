"""`casebook export`: the corpus as a dataset for machines."""

from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import CorpusOption, app, chosen_cases, ends_in_one_line, root, shown
from gpu_casebook.text import plural, size


@app.command()
@ends_in_one_line
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that is new or empty.")],
    corpus: CorpusOption = None,
) -> None:
    """Write the corpus as a dataset: JSON Lines with a row for each case, a Croissant description, and a card.

    Rows have problem statement, environments with their locks, scripts, patch, expectation, evidence and links. They
    are split by a hash of the upstream project, so that no project is in two splits.
    """
    from gpu_casebook.export.dataset import write
    from gpu_casebook.export.rows import row

    top = root(corpus)
    rows = [row(top, case) for case in chosen_cases(None, top)]
    for path, count in write(directory, rows):
        of = f", {plural(count, 'case')}" if count is not None else ""
        print(f"wrote {shown(path)}: {size(path.stat().st_size)}{of}")
