"""Label and field selectors: text to a matcher, parsed once per request.

`parse_labels` and `parse_fields` read query parameters; `parse_object` reads a LabelSelector inside an object. What is
wrong with a selector is a 400 in upstream's words. Nothing here reads stored bytes: matchers work on parsed labels and
objects, and show what they ask for exactly (`equal`, `name`, `namespace`), so that callers can rule records out early.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import invalid
from trainmaster.api.meta import Object
from trainmaster.api.validation import names

EXISTS = "exists"
ABSENT = "!"
IN = "in"
NOT_IN = "notin"
GREATER = "gt"
LESS = "lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        found, bounds = find_int(value or ""), [find_int(text) for text in self.values]
        # The object form is not limited to integers; anything else matches nothing, as upstream.
        if found is None or len(bounds) != 1 or bounds[0] is None:
            return False
        return found > bounds[0] if self.operator == GREATER else found < bounds[0]


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110 - a generator would double the cost of a long list
            if not requirement.matches(labels):
                return False
        return True

    @property
    def equal(self) -> Mapping[str, str]:
        """Labels that must have exactly this value."""
        return {
            requirement.key: next(iter(requirement.values))
            for requirement in self.requirements
            if requirement.operator == IN and len(requirement.values) == 1
        }


EVERYTHING = LabelSelector(())


def find_int(text: str) -> int | None:
    """A decimal of 64 bits, as upstream reads it."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


# The text form.

_TOKENS = re.compile(r"[ \t\r\n]*(==|!=|[=!(),><]|[^ \t\r\n=!(),><]+)")
_OPERATORS = {"=": IN, "==": IN, "!=": NOT_IN, "in": IN, "notin": NOT_IN, ">": GREATER, "<": LESS}
_SYMBOLS = frozenset({"=", "==", "!=", "!", "(", ")", ",", ">", "<", ""})
_WANTED_OPERATOR = "in, notin, =, ==, !=, gt, lt"


class _Unreadable(Exception):
    """Why a selector text cannot be read, as upstream says it."""


def parse_labels(text: str) -> LabelSelector | None:
    """The selector of a `labelSelector` parameter; None when it selects everything."""
    if not text or text.isspace():
        return None
    try:
        requirements = _Parser(text).parse()
    except _Unreadable as error:
        raise status.bad_request(str(error)) from None
    return LabelSelector(tuple(requirements)) if requirements else None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKENS.findall(text), ""]
        self._at = 0

    def parse(self) -> list[Requirement]:
        out: list[Requirement] = []
        while True:
            token = self._peek()
            if token == "":
                return out
            if token in _SYMBOLS and token != "!":
                raise _Unreadable(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                out.append(self._requirement())
            except _Unreadable as error:
                raise _Unreadable(f"unable to parse requirement: {error}") from None
            token = self._next()
            if token == "":
                return out
            if token != ",":
                raise _Unreadable(f"found '{token}', expected: ',' or 'end of string'")
            token = self._peek()
            if token in _SYMBOLS and token != "!":
                raise _Unreadable(f"found '{token}', expected: identifier after ','")

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _requirement(self) -> Requirement:
        key = self._next()
        absent = key == "!"
        if absent:
            key = self._next()
        if key in _SYMBOLS:
            raise _Unreadable(f"found '{key}', expected: identifier")
        if complaints := names.qualified(key):
            raise _Unreadable(str(invalid("<nil>", key, "; ".join(complaints))))
        if absent or self._peek() in ("", ","):
            return Requirement(key, ABSENT if absent else EXISTS)
        sign = self._next()
        operator = _OPERATORS.get(sign)
        if operator is None:
            raise _Unreadable(f"found '{sign}', expected: {_WANTED_OPERATOR}")
        values = self._values() if sign in ("in", "notin") else self._value()
        check_values(key, operator, sorted(values))
        return Requirement(key, operator, frozenset(values))

    def _value(self) -> list[str]:
        if self._peek() in ("", ","):
            return [""]
        token = self._next()
        if token in _SYMBOLS:
            raise _Unreadable(f"found '{token}', expected: identifier")
        return [token]

    def _values(self) -> list[str]:
        token = self._next()
        if token != "(":
            raise _Unreadable(f"found '{token}' expected: '('")
        values: list[str] = []
        value = ""
        while True:
            token = self._next()
            if token in (",", ")"):
                values.append(value)
                value = ""
                if token == ")":
                    return values
            elif token in _SYMBOLS or value:
                raise _Unreadable(f"found '{token}', expected: ',' or ')'")
            else:
                value = token


def check_values(key: str, operator: str, values: Sequence[str]) -> None:
    for number, value in enumerate(values):
        if operator in (GREATER, LESS) and find_int(value) is None:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _Unreadable(str(invalid(f"values[{number}]", value, detail)))
        if complaints := names.label_value(value):
            raise _Unreadable(str(invalid(f"values[{number}][{key}]", value, "; ".join(complaints))))


# The object form.

_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT}


def parse_object(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """A LabelSelector (matchLabels, matchExpressions). Absent selects nothing: None; empty selects everything."""
    if selector is None:
        return None
    requirements = [
        Requirement(key, IN, frozenset((value,))) for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    for expression in selector.get("matchExpressions") or ():
        operator = _OBJECT_OPERATORS.get(expression.get("operator"))
        values = expression.get("values") or []
        if operator is None:
            raise status.bad_request(f'"{expression.get("operator")}" is not a valid label selector operator')
        if (operator in (IN, NOT_IN)) != bool(values):
            detail = "values set must be empty for exists and does not exist" if values else "values set can't be empty"
            raise status.bad_request(f"values: Invalid value: {values}: {detail}")
        requirements.append(Requirement(str(expression.get("key")), operator, frozenset(values)))
    return LabelSelector(tuple(requirements))


# Field selectors.

_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    field: str
    equal: bool
    value: str
    read: Callable[[Object], str]

    def matches(self, obj: Object) -> bool:
        return (self.read(obj) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class FieldSelector:
    terms: tuple[FieldTerm, ...]

    def matches(self, obj: Object) -> bool:
        return all(term.matches(obj) for term in self.terms)

    def find_exact(self, field: str) -> str | None:
        """The one value that a field must have; None when the selector does not fix it."""
        return next((term.value for term in self.terms if term.field == field and term.equal), None)

    @property
    def name(self) -> str | None:
        return self.find_exact("metadata.name")

    @property
    def namespace(self) -> str | None:
        return self.find_exact("metadata.namespace")

    def without(self, *fields: str) -> FieldSelector | None:
        """What remains to be checked when the caller answers equality of these fields itself."""
        terms = tuple(term for term in self.terms if not (term.equal and term.field in fields))
        return FieldSelector(terms) if terms else None


def parse_fields(text: str, kind: Kind) -> FieldSelector | None:
    """The selector of a `fieldSelector` parameter; None when it selects everything."""
    if not text:
        return None
    terms = [_parse_term(text, part, kind) for part in sorted(_split_terms(text)) if part]
    return FieldSelector(tuple(dict.fromkeys(terms))) if terms else None


def _split_terms(text: str) -> list[str]:
    """At commas that no backslash protects."""
    if "\\" not in text:
        return text.split(",")
    parts, start, escaped = [], 0, False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _parse_term(text: str, part: str, kind: Kind) -> FieldTerm:
    found = _TERM.fullmatch(part)
    if found is None:
        raise status.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    field, operator, raw = found.groups()
    value = _unescape(raw)
    return FieldTerm(field, operator != "!=", value, _reader(field, kind))


def _reader(field: str, kind: Kind) -> Callable[[Object], str]:
    if field == "metadata.name":
        return _read_name
    if field == "metadata.namespace" and kind.namespaced:
        return _read_namespace
    read = kind.selectable.get(field)
    if read is None and not kind.selectable and not kind.custom:
        raise status.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    if read is None:
        raise status.bad_request(f"field label not supported: {field}")
    return read


def _read_name(obj: Object) -> str:
    return str(obj["metadata"].get("name") or "")


def _read_namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _unescape(raw: str) -> str:
    if "\\" not in raw and "=" not in raw:
        return raw
    out: list[str] = []
    escaped = False
    for character in raw:
        if escaped:
            if character not in "\\,=":
                raise status.bad_request(f"invalid field selector: invalid escape sequence: \\{character}")
            out.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            raise status.bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            out.append(character)
    if escaped:
        raise status.bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(out)
