"""YAML text -> plain data, with the line of every value and every problem of reading it.

Built on the parser's events and not on composed nodes: what is refused here (aliases, deep nesting) is refused
before it costs anything.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import yaml

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"

Location = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""

_TAG = "tag:yaml.org,2002:"
_RESOLVER = yaml.resolver.Resolver()
_READ: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "str": (re.compile(r"(?s).*"), str),
    "null": (re.compile(r".*"), lambda _: None),
    "bool": (re.compile(r"true|false"), lambda text: text == "true"),
    "int": (re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})"), int),
    "float": (re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?"), float),
}
"""What is read of each kind of scalar without quotes. The rest of YAML 1.1 surprises: yes, 010, 1:30."""
_KINDS = {
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "timestamp": "a date",
    "merge": "a merge key",
}


class Flaw(NamedTuple):
    """Something wrong at a line, and what to do about it."""

    line: int
    location: Location
    what: str


class Spot(NamedTuple):
    """The line on which a value begins, and the text of a scalar as it was written."""

    line: int
    text: str | None


@dataclass
class ManifestText:
    """What could be read of a manifest, however many `flaws` there are."""

    data: Any = None
    spots: dict[Location, Spot] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """Return the line of the value there, or of the nearest one around it."""
        around = (location[:end] for end in range(len(location), -1, -1))
        return next((self.spots[each].line for each in around if each in self.spots), 1)


class _RefusedError(Exception):
    """Nothing after this point is worth reading."""

    def __init__(self, line: int, what: str) -> None:
        self.line, self.what = line, what


def read(file: BinaryIO) -> ManifestText:
    """Read one YAML document. What can't be read is a flaw; raises OSError alone."""
    document = ManifestText()
    try:
        document.data = _DocumentReader(_text(file.read(MAX_BYTES + 1)), document).read()
    except _RefusedError as refusal:
        document.flaws.append(Flaw(refusal.line, (), refusal.what))
    return document


def _text(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise _RefusedError(1, f"is longer than {MAX_BYTES // 1024} KiB, and no manifest needs that")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _RefusedError(line, f"is not UTF-8 (byte 0x{content[error.start]:02x}); save it as UTF-8") from None


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The parser of PyYAML 6.0.4 and later has a limit of its own (1000). It reads ahead to the end of a line, so it
        # may meet that limit before the reader below meets the 17th level, which is on the same line then.
        if mark and error.problem and "nesting depth" in error.problem:
            raise _RefusedError(mark.line + 1, _TOO_DEEP) from None
        # An unclosed quote is found at the end of the file; where it opens is what helps.
        if error.context_mark is not None and error.problem and "end of stream" in error.problem:
            mark = error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        last = max(text.rstrip("\n").count("\n") + 1, 1)
        raise _RefusedError(min(mark.line + 1, last) if mark else 1, f"is not YAML: {said}") from None
    except yaml.reader.ReaderError as error:
        raise _RefusedError(text[: error.position].count("\n") + 1, f"is not YAML: {error.reason}") from None


class _DocumentReader:
    def __init__(self, text: str, document: ManifestText) -> None:
        self.next: Callable[[], Any] = _events(text).__next__
        self.document = document

    def read(self) -> Any:
        self.next()  # stream start
        if isinstance(self.next(), yaml.StreamEndEvent):
            raise _RefusedError(1, "is empty")
        data = self._value(self.next(), ())
        self.next()  # document end
        event = self.next()
        if not isinstance(event, yaml.StreamEndEvent):
            self._flaw(event, (), "a second document begins here; a manifest is one")
        return data

    def _flaw(self, event: yaml.Event, location: Location, what: str) -> None:
        self.document.flaws.append(Flaw(_line(event), location, what))

    def _value(self, event: Any, location: Location, line: int | None = None) -> Any:
        """Read the value that begins with `event`, at `line` if not on its own."""
        if len(location) > MAX_DEPTH:
            raise _RefusedError(_line(event), _TOO_DEEP)
        scalar = isinstance(event, yaml.ScalarEvent)
        self.document.spots[location] = Spot(line or _line(event), event.value if scalar else None)
        if isinstance(event, yaml.AliasEvent):
            self._flaw(event, location, f"alias *{event.anchor}: aliases are not read here; write the value out")
            return None
        if scalar:
            return self._scalar(event, location)
        if event.tag is not None:
            self._refuse_tag(event, location)
        return self._mapping(location) if isinstance(event, yaml.MappingStartEvent) else self._list(location)

    def _list(self, location: Location) -> list[Any]:
        data: list[Any] = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            data.append(self._value(event, (*location, len(data))))
        return data

    def _mapping(self, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            key = self._key(event, location)
            # A key's line is where a person looks for it; a block value begins on the line below.
            value = self._value(self.next(), (*location, key), _line(event))
            if key in data:
                self._flaw(event, (*location, key), "key is there twice; keep one")
            data[key] = value
        return data

    def _key(self, event: Any, location: Location) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _RefusedError(_line(event), "a key must be plain text")
        key: str = event.value
        if not isinstance(self._scalar(event, (*location, key)), str):
            self._flaw(event, (*location, key), f"key {key!r} is not text to YAML; put it in quotes")
        return key

    def _scalar(self, event: Any, location: Location) -> Any:
        """Return what the text of a scalar stands for; what YAML 1.1 reads in a way that surprises stays text."""
        text: str = event.value
        if event.tag not in {None, "!", f"{_TAG}str"}:
            self._refuse_tag(event, location)
        if event.tag is not None or not event.implicit[0]:
            return text
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        kind = tag.removeprefix(_TAG)
        if kind in _READ and _READ[kind][0].fullmatch(text):
            return _READ[kind][1](text)
        self._flaw(event, location, f"YAML reads {text} as {_KINDS.get(kind, kind)}; put it in quotes if it is text")
        return text

    def _refuse_tag(self, event: Any, location: Location) -> None:
        self._flaw(event, location, f"tag {event.tag.replace(_TAG, '!!')} is not allowed; leave it out")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
