"""Label and field selectors: what they match, and the words of a real API server for what it cannot read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.formats import selectors
from trainmaster.api.meta import GVR
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

LABELS = {"a": "1", "b": "", "example.com/c": "x"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a=1", True),
        ("a==1", True),
        ("a = 1 , b", True),
        ("a!=1", False),
        ("z!=1", True),
        ("a", True),
        ("z", False),
        ("!a", False),
        ("! z", True),
        ("a in (1, 2)", True),
        ("a in (2)", False),
        ("z in (1)", False),
        ("a notin (1)", False),
        ("z notin (1)", True),
        ("b in ()", True),
        ("b in (x,,y)", True),
        ("b=", True),
        ("a=,b", False),
        ("a>0", True),
        ("a>1", False),
        ("a<2", True),
        ("b<2", False),
        ("z<2", False),
        ("example.com/c=x", True),
        ("in=1", False),
        ("in in (in)", False),
        ("a=1,a=2", False),
    ],
)
def test_a_label_selector_matches_as_upstream(text: str, want: bool) -> None:
    selector = selectors.parse_labels(text)
    assert selector is not None
    assert selector.matches(LABELS) is want


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_label_selector_selects_everything(text: str) -> None:
    assert selectors.parse_labels(text) is None


_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_KEY = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("-a=b", f'unable to parse requirement: <nil>: Invalid value: "-a": {_NAME}'),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {_VALUE}'),
        ("a foo b", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be "
            "an integer",
        ),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a/b/c=d", f'unable to parse requirement: <nil>: Invalid value: "a/b/c": {_KEY}'),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
    ],
)
def test_what_cannot_be_read_is_a_400_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_labels(text)
    assert (caught.value.code, caught.value.message) == (400, message)


@given(st.text("ab=!(),<>/ \t-in", max_size=20))
def test_no_text_ends_in_anything_but_a_matcher_or_a_400(text: str) -> None:
    try:
        selector = selectors.parse_labels(text)
    except StatusError as error:
        assert error.code == 400
    else:
        assert selector is None or selector.matches(LABELS) in (True, False)


keys, label_values = st.sampled_from("abc"), st.sampled_from(["", "1", "x"])


@given(st.dictionaries(keys, label_values), st.dictionaries(keys, label_values))
def test_equality_selects_exactly_the_labels_that_hold_it(labels: dict[str, str], wanted: dict[str, str]) -> None:
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    selector = selectors.parse_labels(text) or selectors.EVERYTHING
    assert selector.matches(labels) is (labels.items() >= wanted.items())
    assert dict(selector.equal) == wanted


def test_exact_requirements_are_shown_for_early_checks() -> None:
    selector = selectors.parse_labels("a=1,b in (x),c in (x,y),d,!e")
    assert selector is not None
    assert selector.equal == {"a": "1", "b": "x"}


def test_a_selector_object_matches_labels_and_expressions() -> None:
    selector = selectors.parse_object(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "Exists"},
                {"key": "z", "operator": "DoesNotExist"},
                {"key": "a", "operator": "NotIn", "values": ["2"]},
                {"key": "a", "operator": "In", "values": ["1", "2"]},
            ],
        }
    )
    assert selector is not None
    assert selector.matches(LABELS)
    assert not selector.matches({"a": "1"})


def test_an_absent_selector_object_selects_nothing_and_an_empty_one_everything() -> None:
    assert selectors.parse_object(None) is None
    assert selectors.parse_object({}) == selectors.EVERYTHING


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Gt"},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
    ],
)
def test_a_broken_selector_object_is_a_400(expression: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_object({"matchExpressions": [expression]})
    assert caught.value.code == 400


KIND = Kind(
    "",
    "v1",
    "Pod",
    "pods",
    "pod",
    True,
    "Pod",
    SchemaNode,
    selectable={"status.phase": lambda obj: str(obj.get("status", {}).get("phase", ""))},
)
POD = {"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("metadata.name=p", True),
        ("metadata.name==p,status.phase!=Failed", True),
        ("metadata.name=p,metadata.name=p", True),
        ("metadata.name!=p", False),
        ("metadata.namespace=n", True),
        ("status.phase=", False),
        ("metadata.name=p,", True),
        (r"metadata.name=a\,b", False),
    ],
)
def test_a_field_selector_matches_as_upstream(text: str, want: bool) -> None:
    selector = selectors.parse_fields(text, KIND)
    assert selector is not None
    assert selector.matches(POD) is want


def test_an_empty_value_matches_an_absent_field() -> None:
    selector = selectors.parse_fields("status.phase=", KIND)
    assert selector is not None
    assert selector.matches({"metadata": {"name": "p"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b", "field label not supported: a"),
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        (r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("=x", "field label not supported: "),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("spec.nodeName>5", "invalid selector: 'spec.nodeName>5'; can't understand 'spec.nodeName>5'"),
    ],
)
def test_an_unreadable_field_selector_is_a_400_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_fields(text, KIND)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_name_and_namespace_can_be_answered_without_the_object() -> None:
    selector = selectors.parse_fields("metadata.name=p,metadata.namespace=n,status.phase!=Failed", KIND)
    assert selector is not None
    assert (selector.name, selector.namespace) == ("p", "n")
    rest = selector.without("metadata.name", "metadata.namespace")
    assert rest is not None
    assert [term.field for term in rest.terms] == ["status.phase"]
    assert rest.without("status.phase") == rest, "inequality is never answered early"


def test_a_cluster_scoped_kind_has_no_namespace_to_select() -> None:
    kind = catalogue.build().find(GVR("", "v1", "namespaces"))
    assert kind is not None
    with pytest.raises(StatusError):
        selectors.parse_fields("metadata.namespace=x", kind)
