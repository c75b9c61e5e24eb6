"""What the programs under tests/gpu_programs did on a GPU, as tests/gpu_programs/record.py wrote it down.

`python -m tests.recordings > tests/data/gpu/findings.json` puts down what compute-sanitizer's reports are read as. Read
the difference before committing it: it is what the tests hold the parser to.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from failure_signature.reading.findings import Finding, Tool, grouped, sentence
from failure_signature.reading.sanitizer import parse

DIRECTORY = Path(__file__).parent / "data" / "gpu"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One run. `exit_status` is negative for a signal, as subprocess has it; None for a run that was ended."""

    name: str
    command: str
    exit_status: int | None
    stdout: str
    stderr: str

    @property
    def tool(self) -> Tool | None:
        match = re.search(r"--tool (\w+)", self.command)
        return Tool(match[1]) if match else None

    def findings(self) -> list[Finding]:
        return parse(self.stdout, self.tool) if self.tool else []

    @classmethod
    def read(cls, path: Path) -> "Recording":
        text = path.read_text(encoding="utf-8")
        head, stdout, stderr = re.split(r"^----- (?:stdout|stderr)\n", text, flags=re.MULTILINE)
        status = re.search(r"^exit status: (-?\d+)$", head, re.MULTILINE)
        command = re.search(r"^command: (.*)$", head, re.MULTILINE)
        assert command is not None
        return cls(
            name=path.stem,
            command=command[1],
            exit_status=int(status[1]) if status else None,
            stdout=stdout,
            stderr=stderr,
        )


def recordings() -> list[Recording]:
    return [Recording.read(path) for path in sorted(DIRECTORY.glob("*.*.txt"))]


def sentences() -> dict[str, list[str]]:
    """For each recording under a tool, what its grouped findings say."""
    return {it.name: [sentence(finding) for finding in grouped(it.findings())] for it in recordings() if it.tool}


if __name__ == "__main__":
    print(json.dumps(sentences(), indent=1))
