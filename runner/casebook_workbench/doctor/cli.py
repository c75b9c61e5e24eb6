"""`casebook doctor`: what this machine lacks, and the command that fixes it."""

from typing import Annotated

import typer

from gpu_casebook.cli.base import CaseIds, app, chosen_cases, ends_in_one_line, root
from gpu_casebook.places import as_command


@app.command()
@ends_in_one_line
def doctor(
    cases: CaseIds = None,
    online: Annotated[bool, typer.Option("--online", help="Also try to reach the package index.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Facts and findings as JSON.")] = False,
) -> None:
    """Say what this machine lacks for the cases (driver, GPU, Docker, disk, proxy, certificates) and what fixes it.

    Exits with 0 if there is no error, otherwise with 6.
    """
    from pydantic_core import to_json

    from casebook_workbench.doctor.gather import gather
    from casebook_workbench.doctor.render import lines
    from casebook_workbench.doctor.rules import diagnose
    from gpu_casebook.errors import MachineError, Severity

    facts, needs = gather(root(), chosen_cases(cases), online=online)
    findings = diagnose(facts, needs)
    if as_json:
        print(to_json({"facts": facts, "environments": needs, "findings": findings}, indent=1).decode())
    else:
        print(*map(as_command, lines(facts, needs, findings)), sep="\n")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(MachineError.exit_status)
