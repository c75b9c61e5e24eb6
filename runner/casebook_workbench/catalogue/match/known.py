"""What a search knows of each case: the words of its README, repro.py and its output, and what its manifest declares.

Manifests are read as YAML and not checked: a search over a thousand cases takes less than a second, and a case that is
not in order is found all the same.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import yaml
from bm25s.stopwords import STOPWORDS_EN
from packaging.utils import canonicalize_name
from platformdirs import user_cache_path

from gpu_casebook.files import read_text
from gpu_casebook.report.readme import Readme

_FORMAT = 3
_KEPT = 4  # indexes in the cache: of a checkout as it was and is, of the public corpus and of one's own
_MANIFEST = "case.yaml"  # not imported: what checks manifests takes as long to load as the search itself
_MOST_BYTES = 2**20
_MOST_PRINTED = 4000  # characters, from the end
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+(?:\.\d+)+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ENDING = re.compile(r"(?:ations?|ings?|ed|es|s)$")
_COMMON = frozenset(STOPWORDS_EN)
_WEIGHTS = {"heading": 6, "saw": 2, "all": 1, "ran": 1}
"""How often the words of each part of a case count."""


class Known(NamedTuple):
    """One case. Lists have what its environments declare for repro, each once."""

    id: str
    title: str
    symptom: str
    project: str
    failure: str
    messages: list[str]
    exceptions: list[str]
    cuda_errors: list[str]
    signals: list[str]
    kernels: list[str]
    stacks: list[str]
    versions: dict[str, list[str]]  # by package: with the failure, and without it where a release is

    @classmethod
    def of(cls, id_: str, manifest: Mapping[str, Any]) -> "Known":
        """Return what a manifest declares, as YAML or JSON has it."""
        declared = [_expect(manifest.get("repro"))]
        declared += [_expect(each.get("expect"), "repro") for each in (manifest.get("environments") or {}).values()]
        return cls(
            id=id_,
            title=str(manifest.get("title") or ""),
            symptom=str(manifest.get("symptom") or ""),
            project=str((manifest.get("upstream") or {}).get("project") or ""),
            failure=str(manifest.get("failure") or ""),
            messages=_each(declared, "message"),
            exceptions=_each(declared, "exception"),
            cuda_errors=_each(declared, "cuda_error"),
            signals=_each(declared, "signal"),
            kernels=sorted(_each([each.get("sanitizer") or {} for each in declared], "kernel")),
            stacks=sorted(_each([each.get("hang") or {} for each in declared], "stack")),
            versions=_versions(manifest),
        )


def words(text: str) -> list[str]:
    """Return the words of a text as they are compared: identifiers whole and in parts, without common endings."""
    return [stem for stem, _ in spelled(text)]


def spelled(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a text as they are compared, each with how it stands there."""
    for word in _WORD.findall(text):
        parts = [] if word[0].isdigit() else _PART.findall(word)
        if len(parts) > 1:
            yield word.lower(), word
        for part in parts or [word]:
            lower = part.lower()
            if lower not in _COMMON and len(lower) > 1:
                yield (_ENDING.sub("", lower) if len(lower) > 5 else lower), part


class Corpus(NamedTuple):
    """Cases, and an index of their words in the same order."""

    cases: Sequence[Known]
    index: bm25s.BM25

    @classmethod
    def of(cls, cases: Sequence[Known], words_of: Iterable[Sequence[str]]) -> "Corpus":
        index = bm25s.BM25(k1=2.5, b=0.9)
        index.index([[*each] or ["-"] for each in [*words_of] or [[]]], show_progress=False)
        return cls(cases, index)


def read_all(*roots: Path) -> Corpus:
    """Return the cases of these corpora, from a cache while their files are as they were.

    Of two cases with one id, that of the first corpus counts.
    """
    found = {path.parent.name: path.parent for root in reversed(roots) for path in root.glob(f"cases/*/{_MANIFEST}")}
    directories = [directory for _, directory in sorted(found.items())]
    stamps = [
        [each.name, *map(_stamp, (each / _MANIFEST, each / "README.md", _evidence(each)))] for each in directories
    ]
    of = json.dumps([_FORMAT, bm25s.__version__, [*map(str, roots)], stamps])
    cache = user_cache_path("casebook") / "match"
    kept = cache / hashlib.sha256(of.encode()).hexdigest()[:16]
    try:
        cases = [Known(*each) for each in json.loads((kept / "cases.json").read_text(encoding="utf-8"))["cases"]]
        return Corpus(cases, bm25s.BM25.load(kept))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    read_anew = [each for path in directories if (each := read(path))]
    made = Corpus.of([case for case, _ in read_anew], [words for _, words in read_anew])
    with suppress(OSError):  # without a cache it is only slower
        cache.mkdir(parents=True, exist_ok=True)
        for old in sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            made.index.save(directory, show_progress=False)
            Path(directory, "cases.json").write_text(json.dumps({"cases": made.cases}), encoding="utf-8")
            shutil.rmtree(kept, ignore_errors=True)  # it could not be read
            Path(directory).rename(kept)
            Path(directory).mkdir()  # for its own removal
    return made


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError:
        return 0, 0
    return seen.st_size, seen.st_mtime_ns


def read(directory: Path) -> tuple[Known, list[str]] | None:
    """Return what there is to know of one case, and its words; None where its manifest can't be read."""
    try:
        manifest = yaml.load(read_text(directory / _MANIFEST, _MOST_BYTES), Loader=_Loader)  # noqa: S506 a safe one
        known = Known.of(directory.name, manifest)
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
        return None
    readme = Readme.read(directory)
    texts = {
        "heading": f"{known.id} {known.title} {known.symptom} {' '.join(known.messages)}",
        "saw": f"{readme.saw}\n{readme.yours}",
        "all": f"{known.project} {readme.text}",
        "ran": "\n".join(_ran(directory)),
    }
    return known, [word for part, weight in _WEIGHTS.items() for word in words(texts[part]) * weight]


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _evidence(case: Path) -> Path:
    return case.parents[1] / "reports" / "evidence" / case.name


def _ran(case: Path) -> Iterator[str]:
    """Yield repro.py, and what it printed in its first trial of each run: its tracebacks name what no README does."""
    with suppress(OSError):
        yield read_text(case / "repro.py", _MOST_BYTES)
    for path in sorted(_evidence(case).glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            trials = json.loads(path.read_bytes())["trials"]
            yield next((each["stderr"][-_MOST_PRINTED:] for each in trials if each["variant"] == "repro"), "")


def _expect(spec: Any, key: str = "expect") -> Mapping[str, Any]:
    return (spec.get(key) or {}) if isinstance(spec, Mapping) else {}


def _each(declared: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(str(each[key]) for each in declared if each.get(key)))


def _versions(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return for each package that the variants have in two releases the one with the failure and the one without."""
    repro, fixed = (
        dict(_pin(each) for each in (manifest.get(variant) or {}).get("requirements") or ())
        for variant in ("repro", "fixed")
    )
    return {name: [version, *([fixed[name]] if name in fixed else [])] for name, version in repro.items()}


def _pin(requirement: str) -> tuple[str, str]:
    name, _, version = requirement.partition("==")
    return canonicalize_name(name.partition("[")[0]), version
