"""`casebook doctor`: what this machine lacks, and the command that mends it."""

from typing import Annotated

import typer

from gpu_casebook.cli.base import CaseIds, app, chosen_cases, ends_in_one_line, root


@app.command()
@ends_in_one_line
def doctor(
    cases: CaseIds = None,
    online: Annotated[bool, typer.Option("--online", help="Ask the package index too whether it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Facts and findings as JSON.")] = False,
) -> None:
    """What this machine lacks for the cases: driver, GPU, Docker, disk, proxy, certificates; and what mends it.

    Exits with 0 where there is no error, otherwise with 6.
    """
    from gpu_casebook.doctor import render
    from gpu_casebook.doctor.gather import gather
    from gpu_casebook.doctor.needs import needs
    from gpu_casebook.doctor.rules import Severity, diagnose
    from gpu_casebook.errors import MachineError

    chosen = chosen_cases(cases)
    facts, built = gather(root(), chosen, online=online)
    needed = [need for case in chosen for need in needs(case, built)]
    findings = diagnose(facts, needed)
    if as_json:
        print(render.as_json(facts, needed, findings))
    else:
        for line in render.lines(facts, needed, findings):
            print(line)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(MachineError.exit_status)
