"""What a build adds to the package: the corpus itself, the revision it is of, and where the project lives."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGED = "gpu_casebook/packaged"
CORPUS = ("cases", "images", "reports/evidence", "reports/bisect", "reports/watch")
REVISION = "REVISION"


class Corpus(BuildHookInterface[Any]):
    """Puts the corpus into a wheel, and the revision into a wheel and a source archive.

    An editable installation finds the checkout, and needs neither.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root, wheel = Path(self.root), self.target_name == "wheel"
        within = f"{PACKAGED}/" if wheel else ""
        if not (root / REVISION).is_file():  # as it is in a source archive
            stamp = Path(self.directory) / REVISION
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(f"{self.metadata.version}{_revision(root)}\n", encoding="utf-8")
            build_data["force_include"][str(stamp)] = f"{within}{REVISION}"
        elif wheel:
            build_data["force_include"][str(root / REVISION)] = f"{within}{REVISION}"
        if wheel:
            build_data["force_include"] |= {str(root / each): f"{within}{each}" for each in CORPUS}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        (Path(self.directory) / REVISION).unlink(missing_ok=True)


class Home(MetadataHookInterface):
    """Names the project's addresses: those of the repository it is built in, or of the one that GitHub builds."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = _home(Path(self.root))
        if home:
            metadata["urls"] = {
                "Homepage": home,
                "Issues": f"{home}/issues",
                "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
                "Documentation": f"{home}/tree/HEAD/docs",
            }


def _revision(root: Path) -> str:
    """Return " (1a2b3c4d5e6f)", with "+changes" where the corpus or the package differs from it; "" without git."""
    revision = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "runner", "cases", "images")
    return f" ({revision}{'+changes' if changed else ''})" if revision else ""


def _home(root: Path) -> str | None:
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"{server}/{repository}"
    origin = re.fullmatch(
        r"(?:https://|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", _git(root, "remote", "get-url", "origin")
    )
    return f"https://{origin[1]}/{origin[2]}" if origin else None


def _git(root: Path, *words: str) -> str:
    if not (root / ".git").exists():  # git would look further up, and find another project
        return ""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
