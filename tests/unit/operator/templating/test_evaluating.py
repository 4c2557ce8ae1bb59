"""Descriptions: what their nodes mean, to both readers."""

from __future__ import annotations

import pytest

from trainmaster.operator.templating.evaluating import ValueScope, evaluate, evaluate_all, is_true, write_json
from trainmaster.operator.templating.helm import HelmWriter
from trainmaster.operator.templating.nodes import (
    ABSENT,
    All,
    Document,
    EachItem,
    Equals,
    Exceeds,
    Expanded,
    Fallback,
    ForEach,
    Given,
    Has,
    MergedWith,
    Not,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    When,
)

pytestmark = pytest.mark.unit

VALUES = {"on": True, "off": False, "names": ["a", "b"], "none": None, "zero": 0, "map": {"k": "v"}, "word": "x<y"}
SHAPES = {"on": "boolean", "off": "boolean", "names": "array", "none": "integer", "zero": "integer", "map": "object"}
SCOPE = ValueScope(VALUES, "here", "1.2.3")


def write(tree: Tree) -> str:
    return HelmWriter({**SHAPES, "word": "string"}).write_documents([Document("file", tree)])


def test_what_is_absent_takes_its_key_with_it_and_lists_are_spliced() -> None:
    tree = {"a": When(Value("off"), 1), "b": [When(Value("on"), [1, 2]), 3, When(Value("off"), 4)], "c": Value("word")}
    assert evaluate(tree, SCOPE) == {"b": [1, 2, 3], "c": "x<y"}
    assert evaluate(When(Value("off"), 1), SCOPE) is ABSENT


@pytest.mark.parametrize("tree", [{"a": When(Value("off"), 1)}, [When(Value("off"), 1)]])
def test_where_helm_would_say_null_we_say_that_it_is_a_mistake(tree: Tree) -> None:
    with pytest.raises(AssertionError, match="nothing is left"):
        evaluate(tree, SCOPE)


def test_a_value_that_is_not_declared_is_a_mistake() -> None:
    with pytest.raises(KeyError, match=r"there is no value map\.other"):
        evaluate(Value("map.other"), SCOPE)


def test_conditions() -> None:
    assert is_true(All(Value("on"), Not(Value("off")), Given("zero"), Not(Given("none"))), SCOPE)
    assert is_true(All(Equals("zero", 0), Has("names", "c", "b"), Exceeds("names", 1)), SCOPE)
    assert not is_true(Exceeds("zero", Value("zero")), SCOPE)


def test_texts_and_mappings() -> None:
    assert evaluate(Text("n-", ReleaseNamespace(), Fallback(Value("zero"), "-")), SCOPE) == "n-here-"
    assert evaluate(ForEach(Expanded("names", ("z",)), Text(EachItem(), "s")), SCOPE) == ["as", "bs"]
    every = ValueScope({"names": ["all"]}, "")
    assert evaluate(ForEach(Expanded("names", ("y", "z")), EachItem()), every) == ["y", "z"]
    assert evaluate(MergedWith({"a": 1}, (Value("map"),)), SCOPE) == {"a": 1, "k": "v"}


def test_several_objects_come_from_one_document() -> None:
    documents = [Document("a", ForEach(Value("names"), {"name": EachItem()})), Document("b", When(Value("off"), {}))]
    assert evaluate_all(documents, SCOPE) == [{"name": "a"}, {"name": "b"}]


def test_json_is_as_go_writes_it() -> None:
    assert write_json(["<&>", "b"]) == '["\\u003c\\u0026\\u003e","b"]'
    assert [write_json(one) for one in (2.0, 0.5, True)] == ["2", "0.5", "true"]


def test_a_template_names_values_and_closes_what_it_opens() -> None:
    tree = {"kind": "A", "list": ForEach(Value("names"), {"name": EachItem(), "at": ReleaseNamespace()})}
    assert write(When(Value("on"), tree)).splitlines() == [
        "{{- if .Values.on }}",
        "---",
        "kind: A",
        "list:",
        "{{- range .Values.names }}",
        "- name: {{ . | quote }}",
        "  at: {{ $.Release.Namespace | quote }}",
        "{{- end }}",
        "{{- end }}",
    ]


def test_braces_of_others_are_no_actions() -> None:
    assert '{{ "{{" }} $value }}' in write({"text": "{{ $value }}"})


def test_an_element_begins_with_what_is_always_there() -> None:
    lines = write(
        {"list": [{"maybe": When(Value("on"), Value("zero")), "name": "x", "map": Value("map")}]}
    ).splitlines()
    assert lines[2:4] == ["- name: x", "  {{- if .Values.on }}"]
    assert "    {{- toYaml .Values.map | nindent 4 }}" in lines
