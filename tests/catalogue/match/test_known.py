import json
from pathlib import Path

import pytest

from casebook_workbench.catalogue.match.known import read, read_all, words

MANIFEST = """
id: tiny
title: Sums are off
symptom: loss is too small
failure: hang
upstream: {project: Owner/Name, status: open}
environments:
  cpu:
    image: cpu
    expect: {repro: {message: 'sum is \\d+', cuda_error: cudaErrorIllegalAddress}}
repro:
  requirements: ["Some.Package[extra]==1.2", only==3]
  expect:
    exception: pkg.errors.SumError
    signal: SIGBUS
    hang: {after: 20s, stack: 'all_reduce'}
    sanitizer: {tool: memcheck, kernel: sum_kernel}
fixed:
  requirements: [some-package==1.3]
"""
README = "# Sums are off\n\n## What users saw\nThe perplexity explodes.\n\n## Why\nIt rounds.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "casebook" / "match"


def write(root: Path, manifest: str = MANIFEST, name: str = "tiny") -> Path:
    directory = root / "cases" / name
    directory.mkdir(parents=True)
    (directory / "case.yaml").write_text(manifest)
    (directory / "README.md").write_text(README)
    return directory


def test_what_a_case_declares(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert found
    known, _ = found
    assert known[:5] == ("tiny", "Sums are off", "loss is too small", "Owner/Name", "hang")
    assert known.messages == [r"sum is \d+"]
    assert known.exceptions == ["pkg.errors.SumError"]
    assert known.cuda_errors == ["cudaErrorIllegalAddress"]
    assert known.signals == ["SIGBUS"]
    assert known.kernels == ["sum_kernel"]
    assert known.stacks == ["all_reduce"]
    assert known.versions == {"some-package": ["1.2", "1.3"], "only": ["3"]}


def test_what_users_saw_weighs_more_than_the_rest(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert found
    assert (found[1].count("perplexity"), found[1].count("explod"), found[1].count("round")) == (3, 3, 1)


def evidence(root: Path, name: str, stderr: str) -> None:
    directory = root / "reports" / "evidence" / "tiny"
    directory.mkdir(parents=True, exist_ok=True)
    trials = [{"variant": "fixed", "stderr": "all is well"}, {"variant": "repro", "stderr": stderr}]
    (directory / f"{name}.json").write_text(json.dumps({"trials": trials}))


def test_names_in_the_script_and_in_what_it_printed_are_words_of_the_case(tmp_path: Path) -> None:
    directory = write(tmp_path)
    (directory / "repro.py").write_text("torch.cumsum_backward(x)\n")
    evidence(tmp_path, "cpu", "File x.py, in reduce_rows\n")
    (tmp_path / "reports" / "evidence" / "tiny" / "broken.json").write_text("[]")
    found = read(directory)
    assert found
    assert {"cumsum_backward", "reduce_rows"} <= {*found[1]}
    assert "well" not in found[1]


def test_new_evidence_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    assert "reduce_rows" not in read_all(tmp_path).index.vocab_dict
    evidence(tmp_path, "cpu", "in reduce_rows")
    assert "reduce_rows" in read_all(tmp_path).index.vocab_dict


@pytest.mark.parametrize("manifest", ["", "- a", "environments: 7", "{", "repro: {expect: 3}\nenvironments: {}"])
def test_a_case_that_is_not_in_order_is_left_out_or_has_nothing(tmp_path: Path, manifest: str) -> None:
    write(tmp_path, manifest, "broken")
    write(tmp_path)
    assert "tiny" in [case.id for case in read_all(tmp_path).cases]


def titles(root: Path) -> list[str]:
    return [case.title for case in read_all(root).cases]


def kept(cache: Path) -> Path:
    (found,) = cache.glob("*/cases.json")
    return found


def test_cases_are_read_again_once_they_change(tmp_path: Path, cache: Path) -> None:
    directory = write(tmp_path)
    assert titles(tmp_path) == ["Sums are off"]
    kept(cache).write_text(kept(cache).read_text().replace("Sums are off", "from the cache"))
    assert titles(tmp_path) == ["from the cache"]
    (directory / "case.yaml").write_text(MANIFEST.replace("Sums", "Many sums"))
    assert titles(tmp_path) == ["Many sums are off"]


def test_a_few_corpora_are_kept_side_by_side_and_the_oldest_goes(tmp_path: Path, cache: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}")
        read_all(tmp_path / f"{number}")
    made = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    for number in range(3):
        read_all(tmp_path / f"{number}")
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == made
    for number in range(3, 6):
        write(tmp_path / f"{number}")
        read_all(tmp_path / f"{number}")
    assert len({*cache.iterdir()}) == 4
    assert len({*cache.iterdir()} & {*made}) == 1


def test_the_index_is_the_same_from_the_cache(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, MANIFEST.replace("Sums", "Products"), "other")
    fresh, again = (read_all(tmp_path).index.get_scores(["product", "perplexity"]) for _ in range(2))
    assert fresh.tolist() == again.tolist()
    assert fresh[0] != fresh[1]


@pytest.mark.parametrize("broken", ["", "{}", "7", "[", "[[1]]"])
def test_a_cache_that_can_not_be_read_is_made_anew(tmp_path: Path, cache: Path, broken: str) -> None:
    write(tmp_path)
    read_all(tmp_path)
    kept(cache).write_text(broken)
    assert titles(tmp_path) == ["Sums are off"]
    assert "Sums are off" in kept(cache).read_text()


def test_without_a_place_for_the_cache_it_is_read_each_time(tmp_path: Path, cache: Path) -> None:
    write(tmp_path)
    cache.parent.mkdir(parents=True)
    cache.parent.rmdir()
    cache.parent.write_text("a file")
    assert titles(tmp_path) == ["Sums are off"]


def test_no_cases(tmp_path: Path) -> None:
    assert titles(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SamplingTensors.from_lists", ["samplingtensors", "sampl", "tensor", "from_lists", "lists"]),
        ("an illegal memory access", ["illegal", "memory", "acces"]),
        ("torch 2.13.0", ["torch", "2.13.0"]),
        ("HTTPError in a loop", ["httperror", "http", "error", "loop"]),
    ],
)
def test_words_are_identifiers_and_their_parts(text: str, found: list[str]) -> None:
    assert [word for word in words(text) if word != "from"] == found
