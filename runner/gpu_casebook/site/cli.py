"""`casebook site`: all cases as a static site, to be searched and read without a checkout."""

from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import CorpusOption, app, ends_in_one_line, root, shown


@app.command()
@ends_in_one_line
def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, an empty one, or an earlier site's.")],
    corpus: CorpusOption = None,
    reports: Annotated[Path | None, typer.Option(help="Where evidence is. Without it: reports/ beside cases/.")] = None,
    address: Annotated[
        str, typer.Option(metavar="URL", help="Where it will be published; the feed and commands then name it.")
    ] = "",
    repository: Annotated[
        str, typer.Option(metavar="URL", help="The repository on the web, for links to files that the site has not.")
    ] = "",
) -> None:
    """Build a static site of all cases from manifests, READMEs and evidence, with a search. Needs no network.

    The search needs a web server, such as `python -m http.server --directory OUT`; all else works from disk too.
    """
    from gpu_casebook.site.build import build
    from gpu_casebook.text import plural, seconds, size

    top = root(corpus)
    made = build(top, reports or top / "reports", out, address, repository)
    print(f"wrote {shown(out)}: {plural(made.cases, 'case')}, {plural(made.pages, 'page')}, {size(made.bytes)}")
    print(
        f"took {seconds(made.wrote_s + made.built_s + made.indexed_s)}: {seconds(made.wrote_s)} to write the pages, "
        f"{seconds(made.built_s)} to build them, {seconds(made.indexed_s)} for the search"
    )
