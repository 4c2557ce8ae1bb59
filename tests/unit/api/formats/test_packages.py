"""Requirements in one text come apart where one ends and the next begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.formats.packages import MOST, find_problem, is_plain, join, list_problems, split

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", []),
        ("tqdm", ["tqdm"]),
        ("a, b,c", ["a", "b", "c"]),
        ("a\nb, c\n", ["a", "b", "c"]),
        ("numpy>=1,<2", ["numpy>=1,<2"]),
        ("numpy>=1, <2, tqdm", ["numpy>=1, <2", "tqdm"]),
        ("torch[a,b]==2,tqdm", ["torch[a,b]==2", "tqdm"]),
        ("a~=1.0,!=1.3,==1.*", ["a~=1.0,!=1.3,==1.*"]),
        ("a, --index-url=x", ["a", "--index-url=x"]),
        ("a ; python_version in '3.8, 3.9'", ["a ; python_version in '3.8, 3.9'"]),
        ("tool @ git+https://example.com/t@v1", ["tool @ git+https://example.com/t@v1"]),
    ],
)
def test_a_comma_ends_a_requirement_only_where_another_begins(text: str, want: list[str]) -> None:
    assert split(text) == want
    assert split(join(want)) == want


PLAIN = [
    "tqdm",
    "a",
    "Py.Thing_x-1",
    "numpy==1.26.4",
    "numpy >= 1, < 2",
    "torch[a,b]>=2,!=2.1.*",
    "thing~=1.0",
    "thing===1.0+local",
    "thing==1!2.0rc1",
]
NOT_PLAIN = [
    *("/data/project", "./project", "project/", "../x", "~/x", ".", "..", "a/b", "a\\b", "x==../../y", "x===/data/y"),
    *("thing.whl", "thing-1.0-py3-none-any.whl", "thing.tar.gz", "thing.zip", "thing.zip[extra]", "a.TAR.GZ==1"),
    *("https://example.com/x.whl", "file:///data/x", "file:x", "git+https://example.com/x", "git+ssh:x", "x @ y"),
    *("thing @ file:///data/x", "thing@file:///data/x", "thing[a] @ https://e.com/x", "C:\\x", "//host/x"),
    *("-r requirements.txt", "-e .", "--index-url=https://example.com", "--find-links=/x", "-", "--no-binary=:all:"),
    *("x; python_version>'3'", "x ; @ file:///y", "x;", "x --global-option=y", "x --hash=sha256:00", "x \\", "x # y"),
    *("x[", "x]", "x==", "==1", "x=1", "x 1", "x==1 y==2", "x==1;-r y", "é", "x\0", "x\ny", "_x", "x_", "a" * 300),
    *("$HOME", "${PIP_INDEX_URL}", "x==${SECRET}", "x(==1)", "%2e%2e", ""),
]


@pytest.mark.parametrize("requirement", PLAIN)
def test_names_with_versions_are_for_everybody(requirement: str) -> None:
    assert find_problem(requirement) == ""
    assert is_plain(requirement)


@pytest.mark.parametrize("requirement", NOT_PLAIN)
def test_whatever_an_installer_could_take_for_something_else_is_refused(requirement: str) -> None:
    assert find_problem(requirement)


@pytest.mark.parametrize("requirement", [*PLAIN, *NOT_PLAIN])
def test_what_is_let_through_is_a_name_for_the_installers_own_parser_too(requirement: str) -> None:
    if find_problem(requirement):
        return
    parsed = pytest.importorskip("packaging.requirements").Requirement(requirement)
    assert (parsed.url, parsed.marker) == (None, None)


@given(st.text(alphabet="aZ9.-_[],=<>!~ ;@/\\:\n'\"()*+", max_size=40))
def test_no_text_is_let_through_that_could_name_a_place(text: str) -> None:
    if not find_problem(text):
        assert not set("/\\@:;\n") & set(text.strip())
        assert text.strip()[0].isalnum()


def test_a_marker_is_for_the_owner_and_hides_nothing() -> None:
    assert is_plain("x>=1; python_version < '3.12'")
    assert not is_plain("x; python_version < '3' @ file:///y")
    assert not is_plain("x @ file:///y ; python_version < '3'")
    assert not is_plain("/x ; python_version < '3'")


def test_every_bad_requirement_is_named() -> None:
    assert [entry for entry, _ in list_problems("tqdm, ./a\n-e b, c")] == ["./a", "-e b"]
    assert "more than the 100" in list_problems("\n".join(["x"] * (MOST + 1)))[0][1]
