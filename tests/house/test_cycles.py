"""No module needs itself, through whatever others: imports in functions and those for types are counted too."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.tree import list_python, parse

pytestmark = pytest.mark.unit


def list_imports(tree: ast.Module, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in modules else node.module for name in below)
    return found & modules


def test_modules_have_no_import_cycle() -> None:
    trees = {
        ".".join(name.with_suffix("").parts).removesuffix(".__init__"): parse(name)
        for name in list_python("trainmaster")
    }
    modules = set(trees)
    imports = {name: list_imports(tree, modules) for name, tree in trees.items()}
    assert len(imports) > 500 and imports["trainmaster.cli.main"] & modules
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
