"""YAML as other programs write it, and names that fit."""

from __future__ import annotations

import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.training import names, snapshots, yaml_text

pytestmark = pytest.mark.unit

TEXTS = st.one_of(
    st.text(st.sampled_from(string.printable.replace("\x0b", "").replace("\x0c", "").replace("\r", "")), max_size=12),
    st.sampled_from(
        ["yes", "No", "~", "null", "0x1", "1e3", "1:20", "2026-11-15", "2026-11-15T08:00:00Z", "-", "a: b"]
    ),
    st.text(max_size=6),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-(2**53), 2**53), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    assert yaml.safe_load(yaml_text.render(value)) == value


@pytest.mark.parametrize("text", ["0\n0", "a\n-", "- a\n0\n"])
def test_several_lines_alone_read_back_the_same(text: str) -> None:
    assert yaml.safe_load(yaml_text.render(text)) == text


def test_it_looks_as_go_programs_write_it() -> None:
    value = {
        "b": [{"name": "x", "args": ["-De", "--config"]}],
        "a": {},
        "when": "2026-11-15T08:00:00Z",
        "number": "1",
        "s": "a: b",
    }
    want = (
        'a: {}\nb:\n- args:\n  - -De\n  - --config\n  name: x\nnumber: "1"\ns: \'a: b\'\nwhen: "2026-11-15T08:00:00Z"\n'
    )
    assert yaml_text.render(value) == want


def test_a_changed_runtime_has_another_snapshot() -> None:
    runtime = {"metadata": {"name": "r", "uid": "u"}, "spec": {"template": {"spec": {}}}}
    first, text = snapshots.take(runtime, "TrainingRuntime")
    assert snapshots.read(text) == first
    again, other = snapshots.take({**runtime, "spec": {"mlPolicy": {"numNodes": 2}}}, "TrainingRuntime")
    assert (again["spec"]["mlPolicy"], other == text) == ({"numNodes": 2}, False)


@pytest.mark.parametrize(
    ("length", "counts", "fits"),
    [
        (48, {"node": (1, 1)}, True),
        (49, {"node": (1, 1)}, False),
        (33, {"dataset-initializer": (1, 1), "node": (1, 1)}, True),
        (34, {"dataset-initializer": (1, 1), "node": (1, 1)}, False),
        (47, {"node": (1, 100)}, True),
        (48, {"node": (1, 100)}, False),
    ],
)
def test_how_long_a_name_may_be(length: int, counts: dict[str, tuple[int, int]], fits: bool) -> None:
    assert (names.find_too_long("a" * length, counts) is None) is fits


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "torch", "uid": "9a51de44-ba8d-409c-a6db-1f8b8265e1fc"},
        {
            "annotations": {"uid": "no", "text": "a\n  uid: no\n"},
            "finalizers": ["uid"],
            "name": "x",
            "uid": "12345678-0e0-0",
        },
        {"labels": {"metadata": "uid"}, "name": "y", "uid": "00000000-0000-0000-0000-000000000000", "z": {"uid": "no"}},
    ],
)
def test_the_uid_of_a_snapshot_is_found_without_parsing(metadata: dict[str, Any]) -> None:
    _, text = snapshots.take({"metadata": metadata, "spec": {"metadata": {"uid": "no"}}}, "TrainingRuntime")
    assert snapshots.find_uid(text) == metadata["uid"] == snapshots.read(text)["metadata"]["uid"]


@pytest.mark.parametrize(
    "text",
    ["", "metadata: {uid: 1a}\n", "metadata:\n  name: a\nspec:\n  uid: 1a\n", "a:\n  metadata:\n    uid: 1a\n",
     "metadata:\n  annotations:\n    uid: 1a\n"],
)  # fmt: skip
def test_a_uid_that_is_not_where_it_belongs_or_written_otherwise_is_not_found(text: str) -> None:
    assert snapshots.find_uid(text) is None
