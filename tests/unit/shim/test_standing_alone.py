"""A shim outlives upgrades of the package and its environment, so it may lean on the standard library only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import trainmaster.shim

pytestmark = pytest.mark.unit

MODULES = sorted(Path(trainmaster.shim.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_shim_imports_only_the_standard_library_and_its_own_package(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            own = name == "trainmaster.shim" or name.startswith("trainmaster.shim.")
            assert own or name.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"
