"""Which files of the checkout are on the site, and where: links between them are made from this."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from casebook_workbench.catalogue.site import gfm
from casebook_workbench.catalogue.site.lists import scripts
from gpu_casebook.evidence import evidence_files
from gpu_casebook.manifest.case import discover

README = "about.md"
CHINESE = "docs/zh/README.md"
SOURCES = (CHINESE, "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")
FEED, BADGE = "feed.xml", "badge.svg"
_FILES = ("LICENSE", "CITATION.cff", "cases/case.schema.json")
INDEX = "area.md"
_WEB = re.compile(r"(?:[a-z][a-z0-9+.-]*:|//|#)", re.IGNORECASE)


class Map(NamedTuple):
    """`pages` and `files` are by path in the checkout, with their path in the generator's docs or on the site."""

    pages: Mapping[str, str]
    files: Mapping[str, str]
    repository: str = ""  # without it, links to what the site has not are dropped

    def address(self, page: str, link: str, source: str | None = None) -> str | None:
        """Return what a link on a page of the site becomes; None if it leads nowhere.

        `source`: the file of the checkout that the link stands in, where it is another one than the page.
        """
        if link.startswith(gfm.NAME):
            target = f"cases/{link.removeprefix(gfm.NAME)}/README.md"
            return self.address(page, f"/{target}") if target in self.pages and target != page else None
        if _WEB.match(link):
            return link
        path, mark, fragment = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source or page), path)).lstrip("/")
        if at := self._place(target):
            return posixpath.relpath(at, posixpath.dirname(html(page)) or ".") + mark + fragment
        return f"{self.repository}/blob/HEAD/{target}" if self.repository and not target.startswith("..") else None

    def _place(self, target: str) -> str | None:
        page = self.pages.get(target) or self.pages.get(f"{target}/README.md")
        return html(page) if page else self.files.get(target, target if target in {FEED, BADGE} else None)


def html(page: str) -> str:
    """Return where the generator puts a page."""
    directory, name = posixpath.split(page)
    stem = name.removesuffix(".md")
    return posixpath.join(directory, f"{'index' if stem == 'README' else stem}.html")


def survey(root: Path, reports: Path, made: Iterable[str], repository: str = "") -> Map:
    """Return the map of a checkout. `made` are the pages that only the site has."""
    pages = {page: page for page in made}
    files = dict[str, str]()
    pages |= {"reports/README.md": INDEX, "cases": INDEX, "reports": INDEX}
    if (root / "README.md").is_file():
        pages["README.md"] = README
    for path in [*root.glob("docs/**/*.*"), *map(root.joinpath, (*SOURCES, *_FILES))]:
        if path.is_file() and path.suffix in {"", ".cff", ".json", ".md", ".svg"}:
            name = path.relative_to(root).as_posix()
            (pages if path.suffix == ".md" else files)[name] = name
    for case in discover(root):
        pages[f"cases/{case}/README.md"] = f"cases/{case}/README.md"
        if evidence_files(reports, case):
            pages[f"reports/{case}.md"] = f"reports/{case}.md"
        files |= {at: at for name in scripts(root / "cases" / case) for at in [f"cases/{case}/{name}"]}
    for pattern in ("bisect/*.md", "runs/*/*.md"):
        pages |= {name: name for path in reports.glob(pattern) for name in [_of(reports, path)]}
    for pattern in ("evidence/*/[!.]*.json", "runs/*/*.svg", "runs/*/summary.json", "runs/*/junit.xml"):
        files |= {name: name for path in reports.glob(pattern) for name in [_of(reports, path)]}
    return Map(pages, files, repository.rstrip("/"))


def _of(reports: Path, path: Path) -> str:
    return f"reports/{path.relative_to(reports).as_posix()}"
