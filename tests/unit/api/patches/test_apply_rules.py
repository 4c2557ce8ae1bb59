"""Server-side apply: its properties, and kubectl's change-over from client-side apply."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api import status
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.patches import json_patch
from trainmaster.api.patches.apply import LAST_APPLIED, apply
from trainmaster.api.patches.field_sets import difference, find_decoded, intersection, list_paths, union
from trainmaster.api.patches.managed_fields import Writer, keep_times, track_update
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def config_maps() -> Kind:
    kind = catalogue.build().find_type("v1", "ConfigMap")
    assert kind is not None
    return kind


def config_map(data: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", **metadata}}
    return obj if data is None else {**obj, "data": data}


def writer(manager: str, now: str = EARLY) -> Writer:
    return Writer(manager, "v1", now)


def updated(old: dict[str, Any] | None, new: dict[str, Any], manager: str) -> dict[str, Any]:
    entries = track_update(config_maps(), old, new, writer(manager))
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def test_kubectl_changes_over_from_client_side_apply_as_on_a_cluster() -> None:
    """The four requests of `kubectl apply --server-side` on an object that `kubectl apply` made."""
    text = orjson.dumps(config_map({"x": "1", "y": "2"}, labels={"a": "b"})).decode() + "\n"
    live = updated(
        None,
        config_map({"x": "1", "y": "2"}, labels={"a": "b"}, annotations={LAST_APPLIED: text}, uid="u"),
        "kubectl-client-side-apply",
    )
    wanted = config_map({"x": "1", "y": "2"}, labels={"a": "b"})
    kind = config_maps()
    live = apply(kind, live, wanted, writer("kubectl", LATE))
    annotation = config_map(annotations={LAST_APPLIED: live["metadata"]["annotations"][LAST_APPLIED]})
    live = apply(kind, live, annotation, writer("kubectl-last-applied", LATE))
    by_manager = {entry["manager"]: entry["fieldsV1"] for entry in live["metadata"]["managedFields"]}
    assert set(by_manager) == {"kubectl", "kubectl-client-side-apply", "kubectl-last-applied"}
    joined = [
        {
            "manager": "kubectl",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": union(by_manager["kubectl"], by_manager["kubectl-client-side-apply"]),
        },
        next(entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "kubectl-last-applied"),
    ]
    sent = json_patch.apply(live, [{"op": "replace", "path": "/metadata/managedFields", "value": joined}])
    live = updated(live, sent, "kubectl")
    live = apply(kind, live, wanted, writer("kubectl", LATE))
    assert {entry["manager"]: entry["fieldsV1"] for entry in live["metadata"]["managedFields"]} == {
        "kubectl": {"f:data": {"f:x": {}, "f:y": {}}, "f:metadata": {"f:labels": {"f:a": {}}}},
        "kubectl-last-applied": {"f:metadata": {"f:annotations": {"f:" + LAST_APPLIED: {}}}},
    }
    live = apply(kind, live, config_map({"x": "7"}), writer("kubectl", LATE))
    assert live["data"] == {"x": "7"}
    assert "labels" not in live["metadata"]
    assert orjson.loads(live["metadata"]["annotations"][LAST_APPLIED]) == config_map({"x": "7"})


def test_kubectl_meets_no_conflict_where_client_side_apply_set_the_value() -> None:
    text = orjson.dumps(config_map({"x": "1"})).decode()
    live = updated(None, config_map({"x": "1"}, annotations={LAST_APPLIED: text}, uid="u"), "kubectl-client-side-apply")
    changed = apply(config_maps(), live, config_map({"x": "2"}), writer("kubectl", LATE))
    assert changed["data"] == {"x": "2"}
    with pytest.raises(status.Conflict):
        apply(config_maps(), live, config_map({"x": "2"}), writer("somebody", LATE))


def test_a_value_that_changed_since_client_side_apply_is_a_conflict_for_kubectl_too() -> None:
    text = orjson.dumps(config_map({"x": "1"})).decode()
    live = updated(None, config_map({"x": "5"}, annotations={LAST_APPLIED: text}, uid="u"), "controller")
    with pytest.raises(status.Conflict):
        apply(config_maps(), live, config_map({"x": "2"}), writer("kubectl", LATE))


@pytest.mark.parametrize(
    ("applied", "message"),
    [
        pytest.param({**config_map(), "apiVersion": "v2"}, "invalid object type: /v2, Kind=ConfigMap", id="version"),
        pytest.param(config_map(managedFields=[]), "metadata.managedFields must be nil", id="managedFields"),
        pytest.param(
            config_map(finalizers=["a", "a"]),
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): "
            '.metadata.finalizers: duplicate entries for key [="a"]',
            id="duplicates",
        ),
        pytest.param(
            {**config_map(), "data": [1]},
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data: expected map, got [1]",
            id="wrong structure",
        ),
    ],
)
def test_what_cannot_be_applied_is_a_400(applied: dict[str, Any], message: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply(config_maps(), None, applied, writer("a"))
    assert (caught.value.code, caught.value.message) == (400, message)


# A kind with every sort of list and map, so that generated configurations reach all rules.

_ITEM = SchemaNode(
    type="object",
    properties={
        "name": SchemaNode(type="string"),
        "port": SchemaNode(type="integer", has_default=True, default=1),
        "value": SchemaNode(type="string"),
        "tags": SchemaNode(type="array", list_type="set", items=SchemaNode(type="string")),
    },
)
_TREE = SchemaNode(
    type="object",
    properties={
        "metadata": SchemaNode(type="object", properties={"name": SchemaNode(type="string")}),
        "spec": SchemaNode(
            type="object",
            properties={
                "items": SchemaNode(type="array", list_type="map", list_map_keys=("name", "port"), items=_ITEM),
                "whole": SchemaNode(type="array", items=SchemaNode(type="string")),
                "map": SchemaNode(type="object", additional=SchemaNode(type="string")),
                "block": SchemaNode(type="object", atomic_map=True, properties={"a": SchemaNode(type="string")}),
                "free": SchemaNode(type="object", preserve_unknown=True),
                "count": SchemaNode(type="integer"),
            },
        ),
    },
)
SAMPLE = Kind("g", "v1", "Sample", "samples", "sample", True, "Sample", lambda: _TREE, custom=True)

letters = st.sampled_from("abc")
items = st.lists(
    st.fixed_dictionaries(
        {"name": letters},
        optional={"port": st.integers(1, 2), "value": letters, "tags": st.lists(letters, unique=True, max_size=2)},
    ),
    max_size=3,
    unique_by=lambda item: (item["name"], item.get("port", 1)),
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "items": items,
        "whole": st.lists(letters, max_size=2),
        "map": st.dictionaries(letters, letters, max_size=3),
        "block": st.fixed_dictionaries({}, optional={"a": letters}),
        "free": st.dictionaries(letters, letters | st.dictionaries(letters, letters, max_size=2), max_size=2),
        "count": st.integers(0, 3),
    },
)


def sample(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "Sample", "metadata": {"name": "s"}, "spec": spec}


ALICE = Writer("alice", "g/v1", EARLY)
BOB = Writer("bob", "g/v1", LATE)


@given(specs, specs)
def test_applying_twice_changes_nothing_the_second_time(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = apply(SAMPLE, apply(SAMPLE, None, sample(first), ALICE), sample(second), BOB, force=True)
    before = copy.deepcopy(live)
    again = apply(SAMPLE, live, sample(second), replace(BOB, now="2027-01-01T00:00:00Z"), force=True)
    assert keep_times(live, again) == before
    assert live == before


@given(specs, specs)
def test_the_applied_configuration_is_in_the_result(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = apply(SAMPLE, apply(SAMPLE, None, sample(first), ALICE), sample(second), BOB, force=True)
    assert apply(SAMPLE, live, sample(second), BOB) == live, "without force: nothing of it is in conflict"


@given(specs, specs)
def test_one_manager_replaces_its_own_configuration(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = apply(SAMPLE, apply(SAMPLE, None, sample(first), ALICE), sample(second), ALICE)
    fresh = apply(SAMPLE, None, sample(second), ALICE)
    assert ordered(live.get("spec") or {}) == ordered(fresh.get("spec") or {})


def ordered(value: Any) -> Any:
    """Without the order of keyed items and without what is empty: neither is owned by anybody."""
    if isinstance(value, dict):
        return {key: inner for key in value if (inner := ordered(value[key])) not in ({}, [])}
    if isinstance(value, list):
        return sorted((ordered(inner) for inner in value), key=_sorted_json)
    return value


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


@given(specs, specs)
def test_no_field_has_two_owners_after_an_update(first: dict[str, Any], second: dict[str, Any]) -> None:
    old = sample(first)
    old["metadata"]["managedFields"] = track_update(SAMPLE, None, old, ALICE)
    new = sample(second)
    entries = track_update(SAMPLE, old, new, BOB)
    sets = {entry["manager"]: entry["fieldsV1"] for entry in entries}
    assert intersection(sets.get("alice", {}), sets.get("bob", {})) == {}
    if old["metadata"]["managedFields"]:
        everything = track_update(SAMPLE, None, sample(second), ALICE)
        owned = union(sets.get("alice", {}), sets.get("bob", {}))
        missing = difference(everything[0]["fieldsV1"] if everything else {}, owned)
        assert [path for path in list_paths(missing) if path not in (".spec",)] == []


trees: Any = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"']), inner, max_size=3)
)


@given(trees, trees)
def test_sets_obey_the_laws_of_sets(a: Any, b: Any) -> None:
    def members(tree: Any) -> set[str]:
        return set(list_paths(tree))

    assert members(union(a, b)) == members(a) | members(b)
    assert members(difference(a, b)) == members(a) - members(b)
    assert members(intersection(a, b)) == members(a) & members(b)


@pytest.mark.parametrize("raw", [5, {"a": {}}, {"f:a": 5}, {"k:5": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}])
def test_a_broken_field_set_is_not_decoded(raw: Any) -> None:
    assert find_decoded(raw) is None


def test_keys_are_decoded_to_one_spelling() -> None:
    raw: Any = {'k:{"b":1, "a": 2}': {".": {}}, "v: 5": {}, "i:3": {}}
    assert find_decoded(raw) == {'k:{"a":2,"b":1}': {}, "v:5": {}, "i:3": {}}


def test_an_endless_field_set_is_not_decoded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"f:a": deep}
    assert find_decoded(deep) is None
