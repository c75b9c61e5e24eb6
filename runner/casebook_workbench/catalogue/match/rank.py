"""Rank cases by how well they fit a text: by what they declare, by words, and by versions."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import bm25s
import numpy as np
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from casebook_workbench.catalogue.match.known import Corpus, Known, spelled, words
from failure_signature.patterns import find
from failure_signature.reading import cuda_errors

CONFIDENT = 2.0
"""With so many points, MARGIN times those of the next one, and something in the text that it declares, a case is called
likely: words alone also fit what its README tells it from. These and the points below were tuned on the open half of
tests/data/match; of the frozen one only the shares were seen, five times in the last tuning."""
MARGIN = 2.0
_LEAST = 0.25
"""Below this nothing is said to fit."""
_WORDS = 3.0
_STRANGE, _FEW = 0.15, 8.0
_SHOWN = 6  # words that are told
_OF_ONE_LINE = 4  # message, exception, CUDA error, signal
_LETTER = re.compile(r"\w")
_NAME = re.compile(r"[_\dA-Z]")  # of a kernel; one called softmax is named by everybody
_MOST = 200_000  # characters of a log, from its end, where the failure stands
_GENERIC = {
    "RuntimeError",
    "ValueError",
    "TypeError",
    "AssertionError",
    "Exception",
    "NameError",
    "NotImplementedError",
}
_HANGS = re.compile(
    r"\b(?:hangs?|hung|hanging|stuck|deadlock\w*|never returns?|freez\w+|frozen|timed? ?out)\b", re.IGNORECASE
)
_SIGNALS = {
    "SIGSEGV": re.compile(r"segmentation fault|segfault|SIGSEGV|signal 11\b|exit ?code -11\b", re.IGNORECASE),
    "SIGBUS": re.compile(r"bus error|SIGBUS|signal 7\b|exit ?code -7\b", re.IGNORECASE),
    "SIGABRT": re.compile(r"SIGABRT|signal 6\b|exit ?code -6\b", re.IGNORECASE),
}
_INSTALLED = re.compile(
    r"(?m)^(?:\[pip3?\] |- |\* )?([A-Za-z][\w.-]*)(?: ?==? ?| +version:? ?|: ?| +)v?(\d+(?:\.\w+)+(?:\+\w+)?)\s*$"
)


@dataclass
class Match:
    """A case and its points; `fits` and `unlike` say what they come from."""

    case: Known
    points: float = 0.0
    fits: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)
    declared: bool = False
    likely: bool = False

    def add(self, points: float, why: str) -> None:
        self.points += points
        self.fits.append(why)


def rank(corpus: Corpus, text: str, packages: str = "") -> list[Match]:
    """Return the cases that may be this failure, the best first.

    `packages` is what `pip list` or PyTorch's collect_env printed; lines of that kind in `text` count too.
    """
    text = text[-_MOST:]
    found = [Match(case) for case in corpus.cases]
    _by_declarations(found, text)
    _by_words(found, corpus.index, text)
    installed = versions(f"{text}\n{packages}")
    lower = text.lower()
    for match in found:
        _by_project(match, lower, installed)
    ranked = sorted((each for each in found if each.points >= _LEAST), key=lambda each: -each.points)
    if ranked:
        second = ranked[1].points if len(ranked) > 1 else 0.0
        ranked[0].likely = ranked[0].declared and ranked[0].points >= max(CONFIDENT, MARGIN * second)
    return ranked


def versions(text: str) -> dict[str, str]:
    """Return the versions of packages that a text lists, by canonical name."""
    return {canonicalize_name(name): version for name, version in _INSTALLED.findall(text)}


def _by_declarations(found: Sequence[Match], text: str) -> None:
    """Give points for what a case declares; what many cases declare says little of each.

    Message, exception, CUDA error and signal are told by one line of a log, mostly: the most telling one counts.
    """
    error, hangs = cuda_errors.find(text), _HANGS.search(text) is not None
    signals = {name for name, pattern in _SIGNALS.items() if pattern.search(text)}
    kinds: list[tuple[float, str, Callable[[Known], Iterator[str]]]] = [
        (0.84, "its message", lambda case: (shown for each in case.messages if (shown := _message(each, text)))),
        (0.56, "its exception", lambda case: (each for each in case.exceptions if _names(each, text))),
        (0.42, "its CUDA error", lambda case: (each for each in case.cuda_errors if each == error)),
        (0.35, "its signal", lambda case: (each for each in case.signals if each in signals)),
        (
            0.7,
            "its kernel",
            lambda case: (each for each in case.kernels if _NAME.search(each) and _has_word(each, text)),
        ),
        (0.56, "its stack", lambda case: (each for each in case.stacks if find(each, text))),
        (0.35, "it hangs", lambda case: iter(["hangs"] if hangs and case.failure == "hang" else [])),
    ]
    most = [0.0] * len(found)
    for number, (points, what, of) in enumerate(kinds):
        seen = [(match, next(of(match.case), None)) for match in found]
        shared = sum(each is not None for _, each in seen)
        for place, (match, each) in enumerate(seen):
            if each is None:
                continue
            worth = points / math.sqrt(shared)
            if number < _OF_ONE_LINE:
                worth, most[place] = max(worth - most[place], 0.0), max(worth, most[place])
            match.add(worth, f"{what}: {each}")
            match.declared = True


def _message(pattern: str, text: str) -> str | None:
    """Return what a message's pattern matches, if that says anything."""
    match = find(pattern, text)
    shown = match[0] if match else ""
    return shown if len(words(shown)) > 2 else None


def _names(exception: str, text: str) -> bool:
    """Return whether a text has an exception's type, unless that says next to nothing."""
    last = re.split(r"[.(]", exception.rstrip(")"))[-1]
    return last not in _GENERIC and _has_word(last, text)


def _has_word(word: str, text: str) -> bool:
    # Not one pattern: what begins with a look-behind is tried at each character.
    return any(
        not _LETTER.search(text[max(at.start() - 1, 0) : at.start()] + text[at.end() : at.end() + 1])
        for at in re.finditer(re.escape(word), text)
    )


def _by_words(found: Sequence[Match], index: bm25s.BM25, text: str) -> None:
    """Give points for words in common, as BM25 weighs them: the share of what any case could have got."""
    wanted = dict(spelled(text))  # the words as they are compared, and as they stand there
    known = [word for word in wanted if word in index.vocab_dict]
    if not known:
        return
    # The index has a score for each word and case that has it; a call for each word of a long log takes seconds.
    ends = index.scores["indptr"]
    spans = [slice(ends[number], ends[number + 1]) for number in (index.vocab_dict[word] for word in known)]
    counts = [span.stop - span.start for span in spans]
    places = np.concatenate([index.scores["indices"][span] for span in spans])
    # Squared: one rare word says more than several that many cases have.
    scores = np.concatenate([index.scores["data"][span] for span in spans]).astype(float) ** 2
    best = [scores[end - count : end].max(initial=0.0) for end, count in zip(np.cumsum(counts), counts, strict=True)]
    strange = _STRANGE * (len(wanted) - len(known)) * float(np.mean(best))  # words that no case has
    share = np.bincount(places, scores, len(found)) / (sum(best) + strange) * len(known) / (len(known) + _FEW)
    of_word = np.repeat(np.arange(len(known)), counts)
    order = np.lexsort((of_word, -scores, places))
    begins = np.searchsorted(places[order], np.arange(len(found) + 1))
    for place, match in enumerate(found):
        match.points += _WORDS * float(share[place]) ** 1.25
        telling = order[begins[place] : begins[place + 1]][:_SHOWN]
        if shown := list(dict.fromkeys(wanted[known[of_word[each]]] for each in telling if scores[each] > 0)):
            match.fits.append(f"words: {', '.join(shown)}")


def _by_project(match: Match, lower: str, installed: dict[str, str]) -> None:
    name = match.case.project.rpartition("/")[2]
    if name and _has_word(name.lower(), lower):
        match.add(0.15, f"its project: {name}")
    for package, pinned in match.case.versions.items():
        if package not in installed:
            continue
        here = f"{package} {installed[package]}"
        if installed[package] == pinned[0]:
            match.add(0.2, f"its version: {here}")
        elif len(pinned) > 1 and not _older(installed[package], pinned[1]):
            match.points -= 0.2
            match.unlike.append(f"{here}: the case is fixed in {pinned[1]}")


def _older(version: str, than: str) -> bool:
    try:
        return Version(version) < Version(than)
    except InvalidVersion:
        return True
