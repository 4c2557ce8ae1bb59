"""Parses untrusted YAML event by event, without recursion and with bounded cost.

`parse` reads one document like Kubernetes (sigs.k8s.io/yaml): booleans and numbers of YAML 1.1 are converted, dates and
`1:30` are text, keys are text. Features that can inflate a document or obscure its meaning are refused: aliases, merge
keys, tags, duplicate keys, several documents.

libyaml is used as a source of events only. Its scanner is quadratic in the depth of flow collections and in the number
of %TAG lines; both end here, at the depth limit and before the first event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MOST_VALUES = 60_000
"""Maximum number of scalars (including keys) and collections of one document; takes about 100 ms."""
_SLOW_SHARE = 40
"""How much longer PyYAML takes where it was built without libyaml."""
_MOST_TAG_LINES = 16

_TAG_LINE = re.compile(rb"(?:^|[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9])%")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_LETTERS = frozenset("yYnN")
"""Upstream reads the key `n` as "false", which is never intended; here these keys are letters."""
_NUMBER_STARTS = frozenset("+-.0123456789")
_LONGEST_NUMBER = 400
"""Longer sequences of digits are text; converting them to a number would take quadratic time."""
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][+-]?[0-9]+)?")
_SPECIAL = frozenset(sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")) | {
    ".nan",
    ".NaN",
    ".NAN",
}
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_PLAIN_TAGS = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class YamlRefused(ValueError):
    """Why the document is refused, as one sentence for its author."""


def parse(body: bytes, depth: int, most_values: int = MOST_VALUES) -> Any:
    """The value of the single document in `body`. YamlRefused if it is invalid."""
    import yaml  # noqa: PLC0415 - only few requests bring YAML, and the import costs start-up time

    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise YamlRefused(f"yaml: byte {error.start} is not UTF-8") from None
    if len(_TAG_LINE.findall(body)) > _MOST_TAG_LINES:
        raise YamlRefused("yaml: directives (lines that begin with %) are not supported")
    loader, most_values = _choose_loader(most_values)
    try:
        return _build(yaml.parse(body, Loader=loader), depth, most_values)
    except yaml.YAMLError as error:
        raise YamlRefused(_describe(error)) from None


def _choose_loader(most_values: int) -> tuple[Any, int]:
    """The quicker of those that there are, and how many values it reads in the same time."""
    import yaml  # noqa: PLC0415 - see above

    loader: Any = getattr(yaml, "CSafeLoader", None)
    return (yaml.SafeLoader, most_values // _SLOW_SHARE) if loader is None else (loader, most_values)


def find_excess(body: bytes, depth: int, most_values: int = MOST_VALUES) -> tuple[str, int, int] | None:
    """What makes a text of any number of documents unsafe to compose, with its line and column; None if nothing does.
    Errors of syntax are left to whoever composes it, who gets no further than this."""
    import yaml  # noqa: PLC0415 - see above

    if len(_TAG_LINE.findall(body)) > _MOST_TAG_LINES:
        return "directives (lines that begin with %) are not supported", 1, 1
    loader, most_values = _choose_loader(most_values)
    level = values = 0
    try:
        event: Any
        for event in yaml.parse(body, Loader=loader):
            why = ""
            if isinstance(event, yaml.CollectionStartEvent):
                level, values = level + 1, values + 1
                why = "" if event.tag in _PLAIN_TAGS else "tags are not supported"
            elif isinstance(event, yaml.CollectionEndEvent):
                level -= 1
            elif isinstance(event, yaml.ScalarEvent):
                values += 1
                why = "" if event.tag in (None, *_TEXT_TAGS) else "tags are not supported; quote what is text"
            elif isinstance(event, yaml.AliasEvent):
                why = "aliases (*) are not supported: write out what they stand for"
            if level > depth:
                why = f"more than {depth} levels of lists and mappings"
            elif values > most_values:
                why = f"more than {most_values} values"
            if why:
                return why, event.start_mark.line + 1, event.start_mark.column + 1
    except yaml.YAMLError:
        return None
    return None


def _describe(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
    return f"yaml: {where}{str(problem)[:200]}"


_NO_KEY = object()


class _Collection:
    """A mapping or a sequence that is still open."""

    __slots__ = ("key", "line", "value")

    def __init__(self, value: dict[str, Any] | list[Any], line: int) -> None:
        self.value = value
        self.line = line
        self.key: Any = _NO_KEY

    def put(self, value: Any, line: int) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.key is _NO_KEY:
            key = _to_key(value, line)
            if key in self.value:
                raise YamlRefused(f"yaml: line {line}: key {_shorten(key)} already set in map")
            self.key = key
        else:
            self.value[self.key] = value
            self.key = _NO_KEY


def _build(events: Iterator[Any], depth: int, most_values: int) -> Any:
    import yaml  # noqa: PLC0415 - see above

    open_ones: list[_Collection] = []
    root = _Collection([], 0)
    top, values, documents = root, 0, 0
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            values += 1
            top.put(_read_scalar(event, top), event.start_mark.line + 1)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            values += 1
            line = event.start_mark.line + 1
            _check_collection(event, top, line)
            if len(open_ones) >= depth:
                raise YamlRefused(f"yaml: line {line}: exceeded max depth {depth}")
            open_ones.append(top)
            top = _Collection({} if kind is yaml.MappingStartEvent else [], line)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            closed, top = top, open_ones.pop()
            top.put(closed.value, closed.line)
        elif kind is yaml.AliasEvent:
            # Aliases let a small document expand without bound.
            raise YamlRefused(f"yaml: line {event.start_mark.line + 1}: aliases are not supported")
        elif kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise YamlRefused("yaml: the body holds several documents; send one at a time")
        if values > most_values:
            raise YamlRefused(f"yaml: the document has more than {most_values} values; send it as JSON")
    found: list[Any] = root.value  # type: ignore[assignment]  # it was made as a list above
    return found[0] if found else None


def _check_collection(event: Any, top: _Collection, line: int) -> None:
    if event.tag not in _PLAIN_TAGS:
        raise YamlRefused(f"yaml: line {line}: tags are not supported")
    if isinstance(top.value, dict) and top.key is _NO_KEY:
        raise YamlRefused(f"yaml: line {line}: a key must be text, not a mapping or a list")


def _read_scalar(event: Any, top: _Collection) -> Any:
    text: str = event.value
    if event.tag is not None:
        if event.tag not in _TEXT_TAGS:
            raise YamlRefused(f"yaml: line {event.start_mark.line + 1}: tags are not supported; quote what is text")
        return text
    if event.style:
        return text
    if isinstance(top.value, dict) and top.key is _NO_KEY:
        if text == "<<":
            raise YamlRefused(f"yaml: line {event.start_mark.line + 1}: merge keys (<<) are not supported")
        if text in _LETTERS:
            return text
    return resolve(text)


def resolve(text: str) -> Any:
    """The value of a plain scalar. YamlRefused for numbers that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS or len(text) > _LONGEST_NUMBER:
        return text
    if text in _SPECIAL:
        raise YamlRefused(f"yaml: {text} is not a number that JSON has")
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match is not None:
        sign, number = match.groups()
        value = _read_integer(number) * (-1 if sign == "-" else 1)
        if -(2**63) <= value < 2**64:
            return value
    if _FLOAT.fullmatch(digits) is None:
        return text
    found = float(digits)
    if found in (float("inf"), float("-inf")):
        raise YamlRefused(f"yaml: {_shorten(text)} is beyond the range of a number")
    return found


def _read_integer(number: str) -> int:
    if number[:2] in ("0x", "0X", "0b", "0B", "0o", "0O"):
        return int(number, 0)
    return int(number, 8) if number[0] == "0" else int(number)


def _to_key(value: Any, line: int) -> str:
    """The key as text; numbers and booleans are converted."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise YamlRefused(f"yaml: line {line}: a key must be text")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
