"""YAML as Kubernetes reads it, and what of it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainmaster.api.formats import yaml_documents
from trainmaster.api.formats.yaml_documents import YamlRefused

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", None), ("~", None), ("null", None), ("yes", True), ("y", True), ("On", True), ("off", False), ("n", False),
        ("tRue", "tRue"), ("1", 1), ("-1", -1), ("+1", 1), ("0", 0), ("017", 15), ("0o17", 15), ("0x1F", 31),
        ("-0x1F", -31), ("0b11", 3), ("1_000", 1000), ("089", 89.0), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0),
        ("1E-3", 0.001), ("1.", 1.0), ("1:30", "1:30"), ("1:30:00", "1:30:00"), ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"), ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64), ("-9223372036854775809", -(2.0**63)), ("1.2.3", "1.2.3"), ("-", "-"),
        ("0x", "0x"), ("1e", "1e"), ("=", "="), ("<<", "<<"), ("1" * 401, "1" * 401),
        ("0x" + "f" * 500, "0x" + "f" * 500),
    ],
)  # fmt: skip
def test_plain_scalars_mean_what_they_mean_to_kubernetes(text: str, want: Any) -> None:
    found = yaml_documents.resolve(text)
    assert found == want
    assert type(found) is type(want)


def test_documents_are_built_from_their_events() -> None:
    text = b"""
a: [1, {b: c}, []]
1: one
true: yes
n: letter
quoted: "yes"
tagged: !!str 1
folded: >
  two
  lines
? explicit
: value
&anchor anchored: {}
"""
    assert yaml_documents.parse(text, 10) == {
        "a": [1, {"b": "c"}, []],
        "1": "one",
        "true": True,
        "n": "letter",
        "quoted": "yes",
        "tagged": "1",
        "folded": "two lines\n",
        "explicit": "value",
        "anchored": {},
    }
    assert yaml_documents.parse(b"", 10) is None
    assert yaml_documents.parse(b"# nothing\n", 10) is None
    assert yaml_documents.parse("\ufeffa: ä\n".encode(), 10) == {"a": "ä"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"a: &a 1\nb: *a", "aliases"),
        (b"<<: {a: 1}", "merge keys"),
        (b"a: 1\na: 2", "line 2: key 'a' already set"),
        (b"1: 1\n'1': 2", "already set"),
        (b"a: !!binary aGk=", "tags"),
        (b"!!set {a, b}", "tags"),
        (b"!!python/name:os.system x", "tags"),
        (b"[[[[1]]]]", "max depth 3"),
        (b"- - - - 1", "max depth 3"),
        (b"[1]: 2", "a key must be text"),
        (b"{a: 1}: 2", "a key must be text"),
        (b"~: 2", "a key must be text"),
        (b"a: .nan", "not a number that JSON has"),
        (b"a: 1e999", "beyond the range"),
        (b"a\n---\nb", "several documents"),
        (b"a: [", "line 2"),
        (b"\xff\xfea\x00", "UTF-8"),
        (b"%TAG !a! x\n" * 17 + b"--- a", "directives"),
        (b"[1, 2, 3, 4, 5, 6, 7, 8, 9]", "more than 8 values"),
    ],
)
def test_what_hides_or_blows_up_is_refused_in_a_sentence(text: bytes, why: str) -> None:
    with pytest.raises(YamlRefused, match=f"yaml: .*{why}"):
        yaml_documents.parse(text, 3, most_values=8)


def test_what_safe_dump_writes_is_read_back() -> None:
    value = {
        "text": ["yes", "1", "1:30", "~", "", "a: b", "- x", "line\nbreak", "tab\t", "é", "0x1"],
        "numbers": [0, -5, 2**40, 1.5, -0.25],
        "words": [True, False, None],
        "deep": {"a": {"b": {"c": [[], {}]}}},
    }
    assert yaml_documents.parse(yaml.safe_dump(value).encode(), 20) == value
