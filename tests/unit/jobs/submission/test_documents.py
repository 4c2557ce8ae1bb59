"""Reading manifests: lines, several documents, and what is no manifest at all."""

from __future__ import annotations

import pytest

from trainmaster.jobs.submission.documents import parse, parse_bounded

pytestmark = pytest.mark.unit

TWO = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
data:
  when: 2026-01-31
---
# nothing here
---
kind: Pod
spec:
  containers:
  - name: main
    image: x
"""


def test_every_field_knows_its_line() -> None:
    first, second = parse("f", TWO)
    assert (first.line, second.line) == (1, 10)
    assert first.get_line("metadata.name") == 4
    assert second.get_line("spec.containers[0].image") == 14
    assert second.get_line("spec.containers[0].ports[2].name") == 13, "the nearest above"
    assert second.get_line("status.phase") == 10


def test_dates_stay_text_and_empty_documents_are_passed_over() -> None:
    first, _ = parse("f", TWO)
    assert first.obj is not None and first.obj["data"]["when"] == "2026-01-31"


def test_a_list_is_taken_apart_with_its_lines() -> None:
    text = "kind: List\napiVersion: v1\nitems:\n- kind: Pod\n  metadata: {name: a}\n- 7\n"
    first, second = parse("f", text)
    assert first.obj == {"kind": "Pod", "metadata": {"name": "a"}}
    assert first.get_line("metadata.name") == 5
    assert [one.text for one in second.problems] == ["items[1] is not an object"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [1, 2\n", 3, "not YAML: line 3"),
        ("a:\n\t- b\n", 2, "not YAML: line 2, column 1"),
        ("a: !!python/object:os.system x\n", 1, "not YAML: line 1"),
        ("{\x00}", 1, "not YAML"),
        ("a: *unknown\n", 1, "undefined alias"),
        ("? {a: 1}\n: b\n", 1, "unhashable"),
    ],
)
def test_what_is_no_yaml_says_where(text: str, line: int, words: str) -> None:
    (document,) = parse("f", text)
    assert document.obj is None
    assert document.problems[0].line == line
    assert words in document.problems[0].text


def test_documents_before_a_broken_one_are_kept() -> None:
    first, broken = parse("f", "kind: Pod\n---\na: [\n")
    assert first.obj == {"kind": "Pod"} and not first.problems
    assert broken.problems[0].line == 4


def test_a_key_that_stands_twice_names_both_lines() -> None:
    (document,) = parse("f", "spec:\n  a: 1\n  a: 2\n")
    assert [one.text for one in document.problems] == ["spec.a stands twice, in lines 2 and 3: the first one is lost"]


@pytest.mark.parametrize("text", ["just words", "- a\n- b\n", "7"])
def test_what_is_no_object_says_what_it_needs(text: str) -> None:
    (document,) = parse("f", text)
    assert document.problems[0].text == "not an object: it needs apiVersion, kind and metadata"


def test_references_that_go_in_circles_or_multiply_are_refused() -> None:
    (circle,) = parse("f", "a: &x\n  b: *x\n")
    assert "contains itself" in circle.problems[0].text
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (bomb,) = parse("f", "\n".join(lines))
    assert "multiply" in bomb.problems[0].text


def test_every_field_knows_its_column() -> None:
    first, second = parse("f", TWO)
    assert (first.get_column("metadata.name"), second.get_column("spec.containers[0].image")) == (3, 5)
    assert second.get_column("status.phase") == 0


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a:\n\t- b\n", 2, 1, "not YAML: line 2, column 1"),
        ("a: &x 1\nb: *x\n", 2, 4, "aliases (*) are not supported"),
        ("kind: A\n---\na:\n  b: !!python/name:os.system x\n", 4, 6, "tags are not supported"),
        ("a: !local {}\n", 1, 4, "tags are not supported"),
        ("[" * 200, 1, 101, "more than 100 levels"),
        ("- x\n" * 70_000, 60_000, 3, "more than 60000 values"),
        ("%TAG ! x\n" * 50 + "--- a\n", 1, 1, "directives"),
    ],
)
def test_what_strangers_send_is_bounded_and_says_where(text: str, line: int, column: int, words: str) -> None:
    (document,) = parse_bounded("f", text)
    (problem,) = document.problems
    assert words in problem.text
    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize("text", ["a: " + "9" * 5000, "a: \ud800"])
def test_values_that_python_cannot_read_are_problems(text: str) -> None:
    (document,) = parse_bounded("f", text)
    assert document.obj is None and document.problems


def test_a_large_text_of_few_values_is_read() -> None:
    (document,) = parse_bounded("f", "kind: ConfigMap\ndata:\n  a: |\n" + "    a line of code\n" * 40_000)
    assert not document.problems and document.get_line("data.a") == 3


def test_both_ways_of_reading_agree() -> None:
    slow, quick = list(parse("f", TWO)), parse_bounded("f", TWO)
    assert [(one.obj, one.lines, one.columns) for one in slow] == [(one.obj, one.lines, one.columns) for one in quick]
