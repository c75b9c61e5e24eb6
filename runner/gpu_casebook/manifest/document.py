"""YAML text -> plain data, with the line of every value and every problem of reading it.

Built on the parser's events and not on composed nodes: what is refused here (aliases, deep nesting) is refused
before it costs anything.
"""

import re
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import yaml

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16

Location = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""

_TAG = "tag:yaml.org,2002:"
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?")
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


@dataclass(frozen=True)
class ManifestText:
    """`data` is what could be read, however many `flaws` there are; None where nothing could."""

    data: Any = None
    spots: dict[Location, Spot] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """The line of the value there, or of the nearest one around it."""
        for end in range(len(location), -1, -1):
            spot = self.spots.get(location[:end])
            if spot is not None:
                return spot.line
        return 1


class _RefusedError(Exception):
    """Nothing after this point is worth reading."""

    def __init__(self, line: int, what: str) -> None:
        self.line, self.what = line, what


def read(file: BinaryIO) -> ManifestText:
    """Read one YAML document. What can't be read is a flaw; raises OSError alone."""
    document = ManifestText()
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return _with_flaw(document, 1, f"is longer than {MAX_BYTES // 1024} KiB, and no manifest needs that")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return _with_flaw(document, line, f"is not UTF-8 (byte 0x{content[error.start]:02x}); save it as UTF-8")
    try:
        return _DocumentReader(text, document).read()
    except _RefusedError as refusal:
        return _with_flaw(document, refusal.line, refusal.what)
    except yaml.MarkedYAMLError as error:
        return _with_flaw(document, *_syntax_error(error, text))
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        return _with_flaw(document, line, f"is not YAML: {error.reason}")


def _with_flaw(document: ManifestText, line: int, what: str) -> ManifestText:
    return ManifestText(None, document.spots, [*document.flaws, Flaw(line, (), what)])


def _syntax_error(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    # An unclosed quote is found at the end of the file; where it opens is what helps.
    if error.context_mark is not None and error.problem and "end of stream" in error.problem:
        mark = error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    last = max(text.rstrip("\n").count("\n") + 1, 1)
    return min(mark.line + 1, last) if mark else 1, f"is not YAML: {said}"


class _DocumentReader:
    def __init__(self, text: str, document: ManifestText) -> None:
        self.loader = yaml.CSafeLoader(text)
        self.next: Any = self.loader.get_event
        self.document = document

    def read(self) -> ManifestText:
        try:
            data = self._only_document()
        finally:
            self.loader.dispose()
        return ManifestText(data, self.document.spots, self.document.flaws)

    def _only_document(self) -> Any:
        self.next()  # stream start
        event = self.next()
        if isinstance(event, yaml.StreamEndEvent):
            raise _RefusedError(1, "is empty")
        data = self._value(self.next(), ())
        self.next()  # document end
        event = self.next()
        if not isinstance(event, yaml.StreamEndEvent):
            self._flaw(event, (), "a second document begins here; a manifest is one")
        return data

    def _flaw(self, event: yaml.Event, location: Location, what: str) -> None:
        self.document.flaws.append(Flaw(_line(event), location, what))

    def _value(self, event: Any, location: Location) -> Any:
        if len(location) > MAX_DEPTH:
            raise _RefusedError(_line(event), f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            self._flaw(event, location, f"alias *{event.anchor}: aliases are not read here; write the value out")
            return None
        if isinstance(event, yaml.ScalarEvent):
            self.document.spots[location] = Spot(_line(event), event.value)
            return self._scalar(event, location)
        self.document.spots[location] = Spot(_line(event), None)
        if event.tag is not None:
            self._flaw(event, location, _tag_refused(event.tag))
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
            place = (*location, key)
            value = self._value(self.next(), place)
            # A key's line is where a person looks for it; a block value begins on the line below.
            spot = self.document.spots.get(place)
            self.document.spots[place] = Spot(_line(event), spot.text if spot else None)
            if key in data:
                self._flaw(event, place, "key is there twice; keep one")
            data[key] = value
        return data

    def _key(self, event: Any, location: Location) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _RefusedError(_line(event), "a key must be plain text")
        key: str = event.value
        before = len(self.document.flaws)
        if not isinstance(self._scalar(event, (*location, key)), str) and len(self.document.flaws) == before:
            self._flaw(event, (*location, key), f"key {key!r} is not text to YAML; put it in quotes")
        return key

    def _scalar(self, event: Any, location: Location) -> Any:
        text: str = event.value
        if event.tag not in {None, "!", f"{_TAG}str"}:
            self._flaw(event, location, _tag_refused(event.tag))
            return text
        if event.tag is not None or not event.implicit[0]:
            return text
        return self._plain(event, text, location)

    def _plain(self, event: Any, text: str, location: Location) -> Any:
        """A scalar without quotes. What YAML 1.1 reads in a way that surprises is a flaw, and stays text."""
        tag = self.loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        kind = tag.removeprefix(_TAG)
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool" and text in {"true", "false"}:
            return text == "true"
        if kind == "int" and _WHOLE.fullmatch(text):
            return int(text)
        if kind == "float" and _DECIMAL.fullmatch(text):
            return float(text)
        self._flaw(event, location, f"YAML reads {text} as {_KINDS.get(kind, kind)}; put it in quotes if it is text")
        return text


def _tag_refused(tag: str) -> str:
    return f"tag {tag.replace(_TAG, '!!')} is not allowed; leave it out"


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
