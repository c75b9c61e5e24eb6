"""A run of the corpus as JUnit XML, which CI systems read. Summary in, text out.

One testcase for each job: `failure` where there is a verdict and it is not confirmed, `error` where the job broke,
`skipped` where it was skipped or not come to. Elements and attributes keep to what the schemas of Ant and of Jenkins
both allow.
"""

import re
from xml.etree import ElementTree as ET

from casebook_workbench.corpus.report.model import Line, RunSummary, Standing
from failure_signature.text import one_line, plain, utc
from gpu_casebook.report.words import share

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MESSAGE = 400


def junit(summary: RunSummary) -> str:
    """Return the XML: one suite with a testcase for each job."""
    counts: dict[str, str | int] = {
        "tests": len(summary.lines),
        "failures": len(summary.of(Standing.FAILING)),
        "errors": len(summary.of(Standing.BROKE)),
        "time": _seconds(sum(line.duration_s for line in summary.lines)),
    }
    suites = _element("testsuites", name="casebook", **counts)
    suite = _element(
        "testsuite",
        name="casebook",
        package="casebook",
        id=0,
        hostname=summary.host or "localhost",
        timestamp=f"{utc(summary.started):%Y-%m-%dT%H:%M:%S}",
        skipped=len(summary.of(Standing.SKIPPED)) + len(summary.of(Standing.LEFT)),
        **counts,
    )
    suites.append(suite)
    facts = {"run": summary.id, "runner": summary.runner, "selection": summary.selection, "command": summary.command}
    properties = _element("properties")
    properties.extend(_element("property", name=name, value=value) for name, value in facts.items())
    suite.append(properties)
    suite.extend(map(_case, sorted(summary.lines, key=lambda line: line.name)))
    suite.extend([_element("system-out"), _element("system-err")])
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _case(line: Line) -> ET.Element:
    case = _element("testcase", classname=line.case, name=line.name, time=_seconds(line.duration_s))
    if line.standing is Standing.CONFIRMED:
        return case
    left = "not come to: the run has not gone that far" if line.standing is Standing.LEFT else ""
    message = one_line(left or line.reason or line.result, _MESSAGE)
    if line.standing in {Standing.SKIPPED, Standing.LEFT}:
        case.append(_element("skipped", message=message))
        return case
    end = _element("failure" if line.judged else "error", type=line.result, message=message)
    facts = [f"{line.result}: {line.reason}", *(f"{variant}: {share(rate)}" for variant, rate in line.rates.items())]
    facts += [f"{word}: {value}" for word, value in (("on", line.device), ("evidence", line.evidence)) if value]
    end.text = _clean(plain("\n".join(facts)))
    case.append(end)
    return case


def _element(tag: str, **attributes: str | int) -> ET.Element:
    return ET.Element(tag, {name: _clean(str(value)) for name, value in attributes.items()})


def _clean(text: str) -> str:
    """Return the text without what XML can't hold."""
    return _NOT_XML.sub("", text)


def _seconds(value: float) -> str:
    return f"{max(value, 0.0):.3f}"
