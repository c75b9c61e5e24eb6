import re
from typing import Any
from xml.etree import ElementTree as ET

import junitparser
import pytest

from casebook_workbench.corpus.model import Run
from casebook_workbench.corpus.report.junit import junit
from casebook_workbench.corpus.report.summary import summarise
from tests.corpus.report.example import PAIR, RWKV, TODAY, YESTERDAY, broke, finished, job, run, skipped
from tests.report.golden import assert_golden
from tests.report.hostile import HOSTILE

REQUIRED = {
    "testsuites": set[str](),
    "testsuite": {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package", "id"},
    "properties": set[str](),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type"},
    "error": {"type"},
    "skipped": set[str](),
    "system-out": set[str](),
    "system-err": set[str](),
}
ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"skipped"},
    "failure": {"message"},
    "error": {"message"},
    "skipped": {"message"},
}
CHILDREN = {
    "testsuites": "(testsuite )*",
    "testsuite": "properties (testcase )*system-out system-err ",
    "properties": "(property )*",
    "testcase": "(skipped |error |failure )?",
}
"""What the schemas of Ant and Jenkins ask for: attributes that must and may be there, and children in their order."""


def check_schema(element: ET.Element) -> None:
    names = set(element.attrib)
    assert REQUIRED[element.tag] <= names <= REQUIRED[element.tag] | ALLOWED.get(element.tag, set()), element.tag
    children = "".join(f"{child.tag} " for child in element)
    assert re.fullmatch(CHILDREN.get(element.tag, ""), children), f"{element.tag}: {children}"
    if element.tag == "testsuite":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
        assert element.attrib["hostname"]
    for name in {"tests", "failures", "errors", "skipped"} & names:
        assert element.attrib[name].isdigit()
    if "time" in names:
        assert re.fullmatch(r"\d+\.\d+", element.attrib["time"])
    for child in element:
        check_schema(child)


def parsed(of: Run) -> ET.Element:
    root = ET.fromstring(junit(summarise(of)))
    check_schema(root)
    return root


def test_golden() -> None:
    assert_golden("corpus.junit.xml", junit(summarise(TODAY, [YESTERDAY])))


def test_one_testcase_for_each_job_with_its_end() -> None:
    root = parsed(run([*TODAY.finished], left=[job("not-yet")]))
    ends = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert ends == {
        "not-yet/current": ["skipped"],
        "overread/current": ["failure"],
        "pair-hang/current": ["skipped"],
        "rwkv6-backward/current": ["failure"],
        "rwkv6-backward/front-end": [],
        "rwkv6-mask/current": [],
        "unpad/current": ["error"],
        "wake-race/current": [],
    }
    assert [root[0].attrib[name] for name in ("tests", "failures", "errors", "skipped")] == ["8", "2", "1", "2"]


def test_another_reader_counts_the_same() -> None:
    read: Any = junitparser.JUnitXml.fromstring(junit(summarise(TODAY)))
    read.update_statistics()
    assert (read.tests, read.failures, read.errors, read.skipped) == (7, 2, 1, 1)


@pytest.mark.parametrize("text", [HOSTILE, "\x00\x0b\ufffe\uffff\ud800]]>&<\"'", "--><!--", "x" * 100_000])
def test_whatever_a_case_says_stays_text(text: str) -> None:
    hostile = job(text[:500], text[:500])
    root = parsed(run([broke(hostile, text), skipped(job("b"), text), finished(RWKV, evidence=text)], host=text))
    assert len(list(root.iter("testcase"))) == 3
    assert not list(root.iter("script"))


def test_a_run_without_jobs_is_a_suite_without_cases() -> None:
    assert parsed(run([])).find("testsuite") is not None
    assert parsed(run([], left=[PAIR], host=""))[0].attrib["hostname"] == "localhost"
