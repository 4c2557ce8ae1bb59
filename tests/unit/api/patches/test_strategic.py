"""Strategic merge patch on built-in kinds: merge keys, directives, order; and what a real API server made of some."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR
from trainmaster.api.patches import strategic
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit


def pods() -> Kind:
    kind = catalogue.build().find(GVR("", "v1", "pods"))
    assert kind is not None
    return kind


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def patched(old: dict[str, Any], patch: Any) -> Any:
    before, sent = copy.deepcopy(old), copy.deepcopy(patch)
    result = strategic.apply(old, patch, pods())
    assert old == before
    assert patch == sent
    return result


A = {"name": "a", "image": "one", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}
B = {"name": "b", "image": "two", "args": ["1", "2"]}


def containers_after(patch: Any) -> Any:
    return patched(pod(A, B), {"spec": patch})["spec"]["containers"]


def test_a_list_with_a_merge_key_is_merged_by_it() -> None:
    assert containers_after({"containers": [{"name": "a", "image": "new"}]}) == [{**A, "image": "new"}, B]


def test_a_new_item_comes_before_the_others_as_upstream() -> None:
    new = {"name": "c", "image": "three"}
    assert containers_after({"containers": [new]}) == [new, A, B]


def test_the_order_directive_puts_a_new_item_where_it_belongs() -> None:
    new = {"name": "c", "image": "three"}
    order = [{"name": "a"}, {"name": "c"}, {"name": "b"}]
    assert containers_after({"$setElementOrder/containers": order, "containers": [new]}) == [A, new, B]


def test_the_order_directive_alone_reorders() -> None:
    assert containers_after({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}) == [B, A]


def test_items_that_only_the_server_knows_keep_their_place() -> None:
    order = [{"name": "b"}]
    assert containers_after({"$setElementOrder/containers": order, "containers": [{"name": "b"}]}) == [A, B]


def test_nested_lists_merge_too() -> None:
    patch = {"containers": [{"name": "a", "env": [{"name": "Y", "value": "3"}]}]}
    want = [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]
    assert containers_after(patch)[0]["env"] == want


def test_a_list_without_a_strategy_is_replaced() -> None:
    assert containers_after({"containers": [{"name": "b", "args": ["3"]}]})[1]["args"] == ["3"]


def test_an_item_is_deleted_by_directive() -> None:
    assert containers_after({"containers": [{"name": "a", "$patch": "delete"}]}) == [B]


def test_a_list_is_replaced_by_directive() -> None:
    new = {"name": "c", "image": "three"}
    assert containers_after({"containers": [new, {"$patch": "replace"}]}) == [new]


def test_an_item_is_replaced_by_directive_inside_a_map() -> None:
    old = pod(A, nodeSelector={"x": "1", "y": "2"})
    patch = {"spec": {"nodeSelector": {"$patch": "replace", "z": "3"}}}
    assert patched(old, patch)["spec"]["nodeSelector"] == {"z": "3"}


def test_null_removes_a_field_and_directives_never_reach_the_object() -> None:
    old = pod(A, nodeSelector={"x": "1"})
    patch = {"spec": {"nodeSelector": None, "affinity": {"nodeAffinity": {"$patch": "delete"}, "gone": None}}}
    assert patched(old, patch)["spec"] == {"containers": [A], "affinity": {}}


def test_primitive_lists_merge_and_lose_items_by_directive() -> None:
    old = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(old, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"] == ["c", "a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}}
    assert patched(old, patch)["metadata"]["finalizers"] == ["b"]


def test_retain_keys_drops_the_other_members_of_a_union() -> None:
    old = pod(A, volumes=[{"name": "v", "emptyDir": {}}])
    volume = {"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}
    assert patched(old, {"spec": {"volumes": [volume]}})["spec"]["volumes"] == [
        {"name": "v", "configMap": {"name": "c"}}
    ]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        pytest.param([], 400, id="a list"),
        pytest.param({"spec": {"containers": [{"image": "x"}]}}, 400, id="an item without its key"),
        pytest.param({"spec": {"containers": [{"name": "a", "$patch": "odd"}]}}, 400, id="an odd directive"),
        pytest.param({"spec": {"$patch": "odd"}}, 400, id="an odd directive in a map"),
        pytest.param({"spec": {"containers": [[]]}}, 422, id="a list of lists"),
        pytest.param({"spec": {"containers": ["a"]}}, 400, id="a scalar among items"),
        pytest.param({"spec": {"$setElementOrder/containers": 5}}, 400, id="an order that is no list"),
        pytest.param({"spec": {"$setElementOrder/containers": [{"name": {}}]}}, 400, id="an order by objects"),
        pytest.param({"metadata": {"$deleteFromPrimitiveList": []}}, 400, id="a deletion from nowhere"),
        pytest.param({"spec": {"$retainKeys": 5}}, 400, id="keys that are no list"),
        pytest.param({"spec": {"$retainKeys": ["a"], "containers": []}}, 400, id="keys that forget a field"),
    ],
)
def test_malformed_patches_are_refused(patch: Any, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        patched(pod(A, B), patch)
    assert caught.value.code == code


OBSERVED = [
    step
    for line in (Path(__file__).parent / "observed_ownership.jsonl").read_bytes().splitlines()
    if (step := orjson.loads(line))["content_type"].startswith("application/strategic") and step["code"] == 200
]


@pytest.mark.parametrize("step", OBSERVED, ids=lambda step: step["name"])
def test_the_result_is_that_of_a_real_api_server(step: dict[str, Any]) -> None:
    kind = catalogue.build().find_type(step["after"]["apiVersion"], step["after"]["kind"])
    before, body, after = step["before"], step["body"], step["after"]
    if kind is None:  # a PodTemplate: its template is patched like a Pod
        kind = pods()
        before, body, after = before["template"], body["template"], after["template"]
    result = strategic.apply(before, body, kind)
    for part in ("spec", "status"):
        assert without_nulls(result.get(part)) == without_nulls(after.get(part))


def without_nulls(value: Any) -> Any:
    """Upstream shows unset times as null."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


item_names = st.sampled_from("abc")
envs: Any = st.lists(
    st.builds(dict, name=item_names, value=st.sampled_from("12")), max_size=3, unique_by=lambda e: e["name"]
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": item_names}, optional={"image": st.sampled_from("xy"), "env": envs, "args": st.lists(item_names)}
    ),
    max_size=3,
    unique_by=lambda container: container["name"],
)


@given(containers, containers)
def test_a_patch_without_directives_applied_twice_is_applied_once(old: Any, new: Any) -> None:
    once = patched(pod(*old), {"spec": {"containers": new}})
    assert patched(once, {"spec": {"containers": new}}) == once
    assert {c["name"] for c in once["spec"]["containers"]} == {c["name"] for c in old} | {c["name"] for c in new}
