"""JSON patch: RFC 6902, the limits, and the refusals that clients match on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.patches import json_patch
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

OBJECT: dict[str, Any] = {"metadata": {"name": "x", "resourceVersion": "7"}, "list": [1, 2, 3], "a/b": {"c~d": 1}}


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        pytest.param([{"op": "add", "path": "/new", "value": 1}], {"new": 1}, id="add a field"),
        pytest.param([{"op": "add", "path": "/list", "value": 5}], {"list": 5}, id="add replaces a field"),
        pytest.param([{"op": "add", "path": "/list/0", "value": 0}], {"list": [0, 1, 2, 3]}, id="add before an item"),
        pytest.param([{"op": "add", "path": "/list/3", "value": 4}], {"list": [1, 2, 3, 4]}, id="add behind the last"),
        pytest.param([{"op": "add", "path": "/list/-", "value": 4}], {"list": [1, 2, 3, 4]}, id="append"),
        pytest.param([{"op": "remove", "path": "/list/1"}], {"list": [1, 3]}, id="remove an item"),
        pytest.param([{"op": "replace", "path": "/list/1", "value": 9}], {"list": [1, 9, 3]}, id="replace an item"),
        pytest.param([{"op": "replace", "path": "/a~1b/c~0d", "value": 2}], {"a/b": {"c~d": 2}}, id="escaped names"),
        pytest.param(
            [{"op": "move", "from": "/list/0", "path": "/list/2"}], {"list": [2, 3, 1]}, id="move within a list"
        ),
        pytest.param([{"op": "copy", "from": "/list", "path": "/two"}], {"two": [1, 2, 3]}, id="copy"),
        pytest.param(
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "replace", "path": "/metadata/name", "value": "y"},
            ],
            {"metadata": {"name": "y", "resourceVersion": "7"}},
            id="a test that holds is a lock",
        ),
        pytest.param([{"op": "test", "path": "/nothing", "value": None}], {}, id="a missing field tests as null"),
        pytest.param(
            [{"op": "copy", "from": "/list", "path": "/two"}, {"op": "add", "path": "/two/-", "value": 4}],
            {"two": [1, 2, 3, 4]},
            id="a copy is independent of its source",
        ),
    ],
)
def test_operations_change_what_they_name(patch: list[Any], want: dict[str, Any]) -> None:
    before, sent = copy.deepcopy(OBJECT), copy.deepcopy(patch)
    assert json_patch.apply(OBJECT, patch) == {**before, **want}
    assert before == OBJECT
    assert patch == sent


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param([{"op": "remove", "path": "/nothing"}], id="remove what is missing"),
        pytest.param([{"op": "replace", "path": "/nothing", "value": 1}], id="replace what is missing"),
        pytest.param([{"op": "add", "path": "/nothing/below", "value": 1}], id="add below what is missing"),
        pytest.param([{"op": "add", "path": "/metadata/name/below", "value": 1}], id="add below a scalar"),
        pytest.param([{"op": "add", "path": "/list/9", "value": 1}], id="add far behind the end"),
        pytest.param([{"op": "add", "path": "/list/01", "value": 1}], id="index with a leading zero"),
        pytest.param([{"op": "add", "path": "/list/-1", "value": 1}], id="negative index"),
        pytest.param([{"op": "add", "path": "/list/" + "9" * 5000, "value": 1}], id="endless index"),
        pytest.param([{"op": "test", "path": "/list/0", "value": True}], id="one is not true"),
        pytest.param([{"op": "test", "path": "/metadata/resourceVersion", "value": "8"}], id="a test that fails"),
        pytest.param([{"op": "test", "path": "/nothing", "value": 1}], id="a test of what is missing"),
        pytest.param([{"op": "remove", "path": ""}], id="remove everything"),
        pytest.param([{"op": "replace", "path": "", "value": 5}], id="replace the object by a number"),
        pytest.param([{"op": "move", "from": "/a~1b", "path": "/a~1b/c~0d"}], id="move into itself"),
        pytest.param([{"op": "frobnicate", "path": "/list"}], id="unknown operation"),
        pytest.param([{"op": "add", "path": "/list"}], id="add without a value"),
        pytest.param([{"op": "copy", "path": "/list"}], id="copy without a source"),
        pytest.param([{"op": "add", "path": "list", "value": 1}], id="path without a slash"),
    ],
)
def test_a_patch_that_does_not_fit_is_a_422_with_the_cause(patch: list[Any]) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch.apply(OBJECT, patch)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    (cause,) = caught.value.causes
    assert (cause["reason"], cause["field"]) == ("UnexpectedServerResponse", "patch")


@pytest.mark.parametrize("patch", [{"op": "add"}, ["x"], 5, None, [{"op": "add", "path": 5, "value": 1}]])
def test_what_is_no_patch_is_a_400(patch: Any) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch.apply(OBJECT, patch)
    assert caught.value.code == 400


def test_copies_cannot_double_an_object_without_bound() -> None:
    obj: dict[str, Any] = {"a": "x" * 1000}
    patch = [{"op": "copy", "from": "", "path": f"/c{number}"} for number in range(20)]
    with pytest.raises(StatusError) as caught:
        json_patch.apply(obj, patch)
    assert caught.value.code == 422


def test_more_than_ten_thousand_operations_are_a_413() -> None:
    patch = [{"op": "test", "path": "/metadata/name", "value": "x"}] * 10_001
    with pytest.raises(StatusError) as caught:
        json_patch.apply(OBJECT, patch)
    assert caught.value.code == 413


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text("ab/~", max_size=2), values, max_size=4)


def nest(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "stack",
    [
        pytest.param([{"op": "copy", "from": "/x", "path": "/x" + "/a" * 149}], id="copy"),
        pytest.param(
            [{"op": "copy", "from": "/x", "path": "/y"}, {"op": "move", "from": "/y", "path": "/x" + "/a" * 149}],
            id="move",
        ),
        pytest.param([{"op": "add", "path": "/x" + "/a" * 149, "value": nest(150)}], id="add"),
        pytest.param([{"op": "replace", "path": "/x" + "/a" * 148, "value": nest(150)}], id="replace"),
    ],
)
def test_a_patch_cannot_stack_its_parts_beyond_what_can_be_written(stack: list[Any]) -> None:
    fine = [{"op": "add", "path": "/x", "value": nest(150)}]
    json_patch.apply(OBJECT, fine)
    with pytest.raises(StatusError) as refused:
        json_patch.apply(OBJECT, fine + stack)
    assert refused.value.code == 422 and "nested too deeply" in str(refused.value.details)


def test_many_moves_of_shallow_values_are_fine() -> None:
    there, back = {"op": "move", "from": "/list", "path": "/m"}, {"op": "move", "from": "/m", "path": "/list"}
    assert json_patch.apply(OBJECT, [there, back] * 1000) == OBJECT


def build_patch(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """A patch from one object to another, for the inverse property."""
    if isinstance(old, dict) and isinstance(new, dict):
        out: list[dict[str, Any]] = []
        for key in sorted({*old, *new}):
            below = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                out.append({"op": "remove", "path": below})
            elif key not in old:
                out.append({"op": "add", "path": below, "value": new[key]})
            else:
                out.extend(build_patch(old[key], new[key], below))
        return out
    return [] if old == new and type(old) is type(new) else [{"op": "replace", "path": path, "value": new}]


@given(objects, objects)
def test_a_patch_and_its_inverse_lead_there_and_back(old: dict[str, Any], new: dict[str, Any]) -> None:
    there = json_patch.apply(old, build_patch(old, new))
    assert there == new
    assert json_patch.apply(there, build_patch(new, old)) == old


@given(objects, st.lists(st.dictionaries(st.sampled_from(["op", "path", "from", "value", "x"]), values), max_size=4))
def test_no_patch_ends_in_anything_but_an_object_or_a_refusal(obj: dict[str, Any], patch: list[Any]) -> None:
    try:
        assert isinstance(json_patch.apply(obj, patch), dict)
    except StatusError as error:
        assert error.code in (400, 413, 422)
