"""Scripts that run inside an environment or on a bare host: they import nothing of ours."""

from pathlib import Path


def script(name: str) -> Path:
    """Return the file of the script of this name: what only runs elsewhere is not imported here."""
    return Path(__file__).with_name(f"{name}.py")
