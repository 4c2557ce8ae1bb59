"""JSON merge patch: the examples of RFC 7386 that concern objects, and the properties of patch and difference."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.patches import merge
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("old", "patch", "want"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_the_examples_of_the_rfc(old: Any, patch: Any, want: Any) -> None:
    before = copy.deepcopy(old)
    assert merge.apply(old, patch) == want
    assert old == before


@pytest.mark.parametrize("patch", [[1], "x", 5, None])
def test_a_patch_that_is_no_object_is_a_400(patch: Any) -> None:
    with pytest.raises(StatusError) as caught:
        merge.apply({}, patch)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        pytest.param({"a": 1, "b": [1]}, {"b": [1], "a": 1}, {}, id="the same"),
        pytest.param({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}, id="changed and new"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"b": None}, id="gone"),
        pytest.param({}, {"a": None}, {}, id="None is absent"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": None, "y": 3}}, id="gone from within"),
        pytest.param({"a": [{"x": 1}]}, {"a": [{}]}, {"a": [{}]}, id="lists are replaced"),
    ],
)
def test_a_merge_patch_names_what_has_changed(before: Any, after: Any, patch: Any) -> None:
    assert merge.build_patch(before, after) == patch


names = st.text("abc", max_size=2)
values = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)


@given(objects, objects)
def test_the_difference_of_two_objects_is_the_patch_between_them(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge.apply(old, merge.build_patch(old, new)) == new


@given(objects, objects)
def test_a_merge_patch_applied_twice_is_applied_once(old: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge.apply(old, patch)
    assert merge.apply(once, patch) == once


@given(objects)
def test_equal_objects_have_an_empty_difference(obj: dict[str, Any]) -> None:
    assert merge.build_patch(obj, copy.deepcopy(obj)) == {}
