"""Kubernetes quantities: `500m`, `1.5Gi`, `2e3`, and plain JSON numbers.

`canonical` gives the form a server stores: no fraction, the largest suffix that fits, the family of suffixes kept as
it was written. Values are rounded up to thousandths and capped at the largest 64-bit number, as upstream does with
resource lists. Comparison and arithmetic go through `parse`, which returns an exact fraction of base units.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
"""Upstream's text for anything that does not parse."""

_FORM = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]+)?")

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_MILLI = Fraction(1, 1000)
_LARGEST = 2**63 - 1
_LONGEST = 128
"""Maximum number of characters. Parsing a number takes quadratic time, and texts are kept in caches."""


def parse(text: str | int | float) -> Fraction:
    """The exact value. Raises ValueError with upstream's text."""
    return _parse_text(text[: _LONGEST + 1]) if isinstance(text, str) else _parse(text)[0]


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Fraction:
    return _parse(text)[0]


def is_valid(text: object) -> bool:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return False
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def canonical(text: str | int | float) -> str:
    """The stored form of a quantity. Raises ValueError with upstream's text."""
    return _canonical(text[: _LONGEST + 1] if isinstance(text, str) else text)


@lru_cache(maxsize=4096)
def _canonical(text: str | int | float) -> str:
    value, family = _parse(text)
    if abs(value) > _LARGEST:
        return str(_LARGEST if value > 0 else -_LARGEST)
    rounded = _round_up(value)
    if family == "binary":
        return _binary_form(rounded)
    if family in ("e", "E"):
        return _exponent_form(rounded, family)
    return _decimal_form(rounded)


def _parse(text: str | int | float) -> tuple[Fraction, str]:
    if isinstance(text, bool):
        raise ValueError(ERROR)
    if isinstance(text, int):
        return Fraction(text), "decimal"
    if isinstance(text, float):
        # The shortest decimal that reads back as this float: 0.1 is a tenth, not its binary neighbour.
        return Fraction(Decimal(repr(text))), "decimal"
    match = _FORM.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(ERROR)
    sign, digits, suffix = match.groups()
    number = Fraction(Decimal(digits)) * (-1 if sign == "-" else 1)
    if not suffix:
        return number, "decimal"
    if suffix in _BINARY:
        return number * 1024 ** _BINARY.index(suffix), "binary"
    if suffix in _POWERS:
        return number * Fraction(10) ** _POWERS[suffix], "decimal"
    exponent = int(suffix[1:])
    if abs(exponent) > 100:
        raise ValueError(ERROR)
    return number * Fraction(10) ** exponent, suffix[0]


def _round_up(value: Fraction) -> Fraction:
    """Away from zero to a multiple of a thousandth."""
    steps = value / _MILLI
    if steps.denominator == 1:
        return value
    whole = -(-steps.numerator // steps.denominator) if steps > 0 else steps.numerator // steps.denominator
    return whole * _MILLI


def _binary_form(value: Fraction) -> str:
    if value.denominator != 1:
        # A fraction of a byte cannot be written with binary suffixes.
        return _decimal_form(value)
    whole, step = value.numerator, 0
    if -1024 < whole < 1024:
        return str(whole)
    while step < len(_BINARY) - 1 and whole % 1024 == 0:
        whole //= 1024
        step += 1
    return f"{whole}{_BINARY[step]}"


def _scaled(value: Fraction) -> tuple[int, int]:
    """(digits, exponent) with the largest exponent divisible by three that leaves no fraction."""
    if value == 0:
        return 0, 0
    exponent = -3
    number = (value / _MILLI).numerator
    while number % 1000 == 0 and exponent < 18:
        number //= 1000
        exponent += 3
    return number, exponent


def _decimal_form(value: Fraction) -> str:
    number, exponent = _scaled(value)
    return f"{number}{_DECIMAL[exponent]}"


def _exponent_form(value: Fraction, letter: str) -> str:
    number, exponent = _scaled(value)
    return f"{number}{letter}{exponent}" if exponent else str(number)
