"""What a cache leaves undecoded: obsolete events, specs and field ownership, and never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.client.watch_lines import cut_spec, keep_last_states

pytestmark = pytest.mark.unit

TRAPS = ('},"spec":{', ',"status":{', ',"managedFields":[', '"uid":"x"', "}}", "\\")
TEXT = st.one_of(st.text(max_size=8), st.sampled_from(TRAPS), st.tuples(*[st.sampled_from(TRAPS)] * 2).map("".join))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(TEXT, VALUE, max_size=3)


def encode(uid: str, *, kind: str = "Pod", type: str = "MODIFIED", **parts: Any) -> bytes:
    """As an API server does for kinds of its own. `parts`: annotations, owned, spec, status."""
    meta = {"name": "a", "namespace": "default", "uid": uid, "annotations": parts.get("annotations", {})}
    if "owned" in parts:
        meta["managedFields"] = parts["owned"]
    obj = {"kind": kind, "apiVersion": "v1", "metadata": meta}
    obj |= {key: parts[key] for key in ("spec", "status") if key in parts}
    return json.dumps({"type": type, "object": obj}, separators=(",", ":"), ensure_ascii=False).encode()


@given(annotations=FIELDS, owned=st.lists(FIELDS, max_size=2), spec=FIELDS, status=st.dictionaries(TEXT, TEXT))
def test_only_spec_and_ownership_are_cut(annotations: Any, owned: Any, spec: Any, status: Any) -> None:
    line = encode("u", annotations=annotations, owned=owned, spec=spec, status=status)
    whole, rest = json.loads(line)["object"], json.loads(cut_spec(line))["object"]
    del whole["spec"], whole["metadata"]["managedFields"]
    assert rest == whole


@pytest.mark.parametrize(
    "line",
    [
        encode("u", status={"phase": "Running"}),
        encode("u", spec={"a": 1}),
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410}}',
        b'{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{},"status":{}}}',
        b"",
        b"nonsense",
    ],
)
def test_what_looks_different_stays_as_it_is(line: bytes) -> None:
    assert cut_spec(line) == line
    assert keep_last_states([line]) == [line]


def test_only_the_last_state_of_an_object_is_kept() -> None:
    first, other, gone = encode("u"), encode("v"), encode("u", type="DELETED")
    again, custom = encode("w", type="ADDED"), b'{"type":"MODIFIED","object":{"apiVersion":"a/v1"}}'
    assert keep_last_states([first, custom, other, gone, custom, again]) == [custom, other, gone, custom, again]
    assert keep_last_states([]) == []
