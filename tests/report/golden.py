"""Text compared with a file in golden/. CASEBOOK_UPDATE_GOLDEN=1 writes it anew, for git to show what changed."""

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("CASEBOOK_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_bytes().decode("utf-8")
