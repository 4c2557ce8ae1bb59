"""The stored bytes: what can be read without parsing is what parsing would give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.meta import Object
from trainmaster.apiserver import stored
from trainmaster.store.contract import StoredRecord

pytestmark = pytest.mark.unit

TEXT = st.text(alphabet='ab"\\{}[],:\n é', max_size=8)
OWNERS = st.lists(st.fixed_dictionaries({"uid": TEXT, "name": TEXT, "apiVersion": TEXT}), max_size=2)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


METADATA = optional(
    generateName=TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=2),
    annotations=st.dictionaries(st.sampled_from(["ownerReferences", "uid", "deletionTimestamp"]), TEXT),
    ownerReferences=OWNERS,
    deletionTimestamp=st.just("2026-01-01T00:00:00Z"),
    finalizers=st.lists(TEXT, max_size=2),
    unknown=TEXT,
)
NESTED = st.just(
    {"template": {"metadata": {"ownerReferences": [{"uid": "wrong"}], "deletionTimestamp": "x", "uid": "y"}}}
)


@given(METADATA, optional(spec=NESTED), TEXT)
def test_peeking_agrees_with_parsing(metadata: Object, rest: Object, name: str) -> None:
    obj = {"kind": "K", **rest, "metadata": {**metadata, "uid": "the-uid", "name": name}, "apiVersion": "v1"}
    value = stored.dump(obj)
    parsed = stored.parse(value)
    assert parsed == obj
    assert stored.peek_uid(value) == "the-uid"
    assert stored.peek_deletion(value) == metadata.get("deletionTimestamp", "")
    assert stored.peek_owners(value) == metadata.get("ownerReferences", [])
    assert stored.labels_of(StoredRecord("b", "n", 1, 1, value)) == metadata.get("labels", {})


def test_names_of_records_split_into_namespace_and_name() -> None:
    assert stored.split_name("default/a") == ("default", "a")
    assert stored.split_name("node-1") == ("", "node-1")


@given(METADATA, METADATA, optional(spec=NESTED), TEXT)
def test_equal_bytes_of_owners_mean_equal_owners(one: Object, other: Object, rest: Object, name: str) -> None:
    first, second = (
        stored.dump({"apiVersion": "v1", "kind": "Thing", "metadata": {**metadata, "name": name}, **rest})
        for metadata in (one, other)
    )
    if stored.has_same_owners(first, second):
        assert stored.peek_owners(first) == stored.peek_owners(second)
    assert stored.has_same_owners(first, first)
