"""The page of threats (docs/security.md): every row names a test that exists, and every attack has its row."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.tree import ROOT, list_files, list_python, parse

pytestmark = pytest.mark.unit

PAGE = "docs/security.md"
ATTACKERS = {
    "stranger": "An unauthenticated client",
    "tenant": "A tenant",
    "pod": "A tenant's Pod",
    "unix_user": "Another Unix user",
    "cluster": "A cluster namespace",
}
"""Folder of tests/attacks -> the heading of its table."""
_TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)(?:::(test_[a-z0-9_]+))?`")


def read_tables() -> dict[str, list[list[str]]]:
    """Heading -> the rows of the table below it, as cells; the head and its line are left out."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / PAGE).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return {heading: rows[2:] for heading, rows in found.items()}


def list_tests(path: str) -> set[str]:
    name = next((name for name in list_files() if str(name) == path), None)
    if name is None:
        return set()
    return {node.name for node in ast.walk(parse(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("heading", ATTACKERS.values())
def test_every_threat_names_a_test_that_exists(heading: str) -> None:
    rows = read_tables().get(heading, [])
    assert rows, f"{PAGE} has no table under {heading!r}"
    for row in rows:
        tests = _TEST.findall(row[-1])
        assert tests, f"no test shows: {row[0]}"
        for path, function in tests:
            known = list_tests(path)
            assert known, f"{path} does not exist"
            assert not function or function in known, f"{path} has no {function}"


def test_every_file_of_attacks_stands_in_the_page() -> None:
    page = (ROOT / PAGE).read_text()
    files = [str(name) for name in list_python("tests") if name.match("tests/attacks/*/test_*.py")]
    assert files
    assert [name for name in files if name not in page] == []


def test_every_attacker_has_tests() -> None:
    folders = {name.parts[2] for name in list_python("tests") if name.match("tests/attacks/*/test_*.py")}
    assert set(ATTACKERS) - folders == set()
