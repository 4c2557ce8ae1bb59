"""The values that a user gives to an installation: files, and single ones with --set, as with Helm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from trainmaster.api.meta import Fields, Object
from trainmaster.operator.install import ValuesError

_DOT = re.compile(r"(?<!\\)\.")
_COMMA = re.compile(r"(?<!\\),(?![^{}]*\})")
"""Not within {...}, and not after a backslash."""
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None}


def gather_values(base: Fields, files: Sequence[str], assignments: Sequence[str]) -> Object:
    """Later ones win. Raises ValuesError."""
    found = dict(base)
    for name in files:
        found = _overlay(found, read_values_file(Path(name)))
    for text in assignments:
        for one in _COMMA.split(text):
            found = _overlay(found, parse_assignment(one))
    return found


def read_values_file(path: Path) -> Object:
    """Raises ValuesError."""
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValuesError(f"--values {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValuesError(f"--values {path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict | None):
        raise ValuesError(f"--values {path}: must be a mapping, as the chart's values.yaml")
    return found or {}


def parse_assignment(text: str) -> Object:
    r"""`manager.replicas=3`, `v1Jobs={tfjob,mpijob}`; `\.` is a dot in a key. Raises ValuesError."""
    path, equals, value = text.partition("=")
    keys = [key.replace("\\.", ".") for key in _DOT.split(path)]
    if not equals or not all(keys):
        raise ValuesError(f"--set {text}: must be KEY=VALUE, for example manager.replicas=3")
    if any("[" in key for key in keys):
        raise ValuesError(f"--set {text}: elements of lists cannot be set one by one: use --values FILE")
    found: object = _parse_value(value)
    for key in reversed(keys):
        found = {key: found}
    assert isinstance(found, dict)
    return found


def _parse_value(text: str) -> object:
    if text.startswith("{") and text.endswith("}"):
        return [_parse_value(part) for part in _COMMA.split(text[1:-1]) if part]
    if text in _WORDS:
        return _WORDS[text]
    # A number such as 007 is text, as with Helm.
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else text.replace("\\,", ",")


def _overlay(base: Fields, more: Fields) -> Object:
    """Mappings are merged; null stays, because it means that a default is to be removed."""
    found = dict(base)
    for key, value in more.items():
        before = found.get(key)
        is_merged = isinstance(value, Mapping) and isinstance(before, Mapping)
        found[key] = _overlay(before, value) if is_merged else value  # type: ignore[arg-type]
    return found
