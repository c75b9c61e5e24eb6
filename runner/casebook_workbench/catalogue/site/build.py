"""From a checkout to a directory that any web server can serve: pages, then zensical, then pagefind."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from casebook_workbench.catalogue.site.pages import Written, write
from gpu_casebook.errors import CasebookError, UsageError

THEME = Path(__file__).parent / "theme"
_MARK = ".casebook-site"
_NEEDS = ("markdown_it", "pagefind", "pagefind_bin", "zensical")


class Built(NamedTuple):
    """What was built, its size, and what it took."""

    cases: int
    pages: int
    bytes: int
    wrote_s: float
    built_s: float
    indexed_s: float


def build(root: Path, reports: Path, out: Path, address: str = "", repository: str = "") -> Built:
    """Build the site into `out`. Raises UsageError, ManifestError, CasebookError, OSError; then `out` is as it was."""
    _check(out)
    for name, url in {"--address": address, "--repository": repository}.items():
        if url and not re.fullmatch(r"https?://[^\s<>\"'`()]+", url):
            raise UsageError(f"{name} {url}: write an address of the web, such as https://example.org/casebook/")
    address = f"{address.rstrip('/')}/" if address else ""
    with tempfile.TemporaryDirectory(prefix="casebook-site-") as directory:
        home = Path(directory)
        begun = time.monotonic()
        written = write(root, reports, home / "docs", address, repository)
        (home / "mkdocs.yml").write_text(json.dumps(_configuration(written, address)), encoding="utf-8")
        wrote = time.monotonic()
        _run(["zensical", "build", "--strict", "-f", "mkdocs.yml"], home)
        made = home / "site"
        for name, source in written.files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, made / name)
        for name, text in written.texts.items():
            (made / name).write_text(text, encoding="utf-8")
        built = time.monotonic()
        _run(["pagefind", "--site", str(made)], home)
        (made / _MARK).touch()
        (made / ".nojekyll").touch()
        indexed = time.monotonic()
        if out.exists():
            shutil.rmtree(out)
        shutil.copytree(made, out)
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    pages = sum(1 for _ in out.rglob("*.html"))
    return Built(written.cases, pages, sum(sizes), wrote - begun, built - wrote, indexed - built)


def _check(out: Path) -> None:
    if missing := [name for name in _NEEDS if importlib.util.find_spec(name) is None]:
        raise UsageError(f"the site needs {', '.join(missing)}: pip install 'gpu-casebook[site]'")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a directory; name another one")
    if out.exists() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise UsageError(f"{out} holds something that is no site of Casebook; name another directory, or empty it")


def _run(command: Sequence[str], home: Path) -> None:
    """Run a module in `home`. Raises CasebookError with what it says if it fails."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise CasebookError(f"{command[0]} could not build the site (exit status {done.returncode}):\n{said[-2000:]}")


def _configuration(written: Written, address: str) -> dict[str, Any]:
    """Return the generator's configuration: JSON is YAML too."""
    palette = [
        {"media": "(prefers-color-scheme)", "toggle": _toggle("brightness-auto", "light")},
        {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": _toggle("brightness-7", "dark")},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": _toggle("brightness-4", "system")},
    ]
    return {
        "site_name": "Casebook",
        "site_description": "Documented GPU and training-stack failures that anyone can run",
        **({"site_url": address} if address else {}),
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": False,  # the pages can be read from disk too
        "nav": written.nav,
        "plugins": [{"search": {"enabled": False}}],  # the search is pagefind's
        "theme": {
            "name": "material",
            "variant": "modern",
            "custom_dir": str(THEME),
            "font": False,  # nothing is fetched
            "palette": palette,
            "features": ["content.code.copy", "navigation.top", "toc.follow"],
        },
        "extra": {"generator": False},
        "extra_css": ["assets/casebook.css"],
        "extra_javascript": [{"path": "assets/search.js", "type": "module"}],
        "markdown_extensions": [{"toc": {"permalink": False}}],
    }


def _toggle(icon: str, to: str) -> dict[str, str]:
    return {"icon": f"material/{icon}", "name": f"Change to {to} colours"}
