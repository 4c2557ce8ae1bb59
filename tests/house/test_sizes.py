"""Sizes are habits until they drift; these bounds are where a file or a function must be split."""

from __future__ import annotations

import ast

import pytest

from tests.house.tree import ROOT, list_python, parse

pytestmark = pytest.mark.unit

FILE_LINES = 900
FUNCTION_LINES = 70
PARAMETERS = 10


def test_no_file_is_longer_than_900_lines() -> None:
    lengths = {
        str(name): (ROOT / name).read_text().count("\n") for name in list_python("trainmaster", "tests", "tools")
    }
    assert {name: length for name, length in lengths.items() if length > FILE_LINES} == {}


def test_no_function_is_longer_than_70_lines() -> None:
    found = {}
    for name in list_python("trainmaster"):
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    found[f"{name}:{node.name}"] = length
    assert found == {}


def test_no_function_takes_more_than_10_parameters() -> None:
    found = {}
    for name in list_python("trainmaster"):
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
                if arguments.args and arguments.args[0].arg in ("self", "cls"):
                    count -= 1
                if count > PARAMETERS:
                    found[f"{name}:{node.name}"] = count
    assert found == {}


def test_every_module_says_what_it_is() -> None:
    bare = [str(name) for name in list_python("trainmaster", "tools", "bench") if not ast.get_docstring(parse(name))]
    assert [name for name in bare if (ROOT / name).stat().st_size > 0] == []
