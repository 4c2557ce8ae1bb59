"""The shape of the tree: rooms that can be overlooked, and objects that are read through models."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.house.tree import ROOT, parse

pytestmark = pytest.mark.unit

SOURCES = sorted((ROOT / "trainmaster").rglob("*.py"))
MOST_MODULES = 20
MOST_GUARDS = 30
MOST_ANY = 162
_GUARD = re.compile(r"""\.get\([^()]*\) or (\{\}|\[\]|\(\)|"")""")
_ANY = re.compile(r"\bAny\b")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def list_lines(pattern: re.Pattern[str], *parts: str) -> list[str]:
    """Where it stands in the product, but for those parts."""
    found = []
    for path in SOURCES:
        if not name(path).startswith(parts):
            lines = path.read_text().splitlines()
            found += [f"{name(path)}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_no_folder_is_a_drawer() -> None:
    counts = Counter(name(path.parent) for path in SOURCES)
    # One module for each command.
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES}.keys() <= {
        "trainmaster/cli/commands"
    }


def test_objects_are_read_through_models() -> None:
    """`.get("spec") or {}` says how a field may be missing, and not what is meant. `jobs.models` has what is meant, and
    `api.reading` the rest. Below this number are texts and mappings that are no objects of the API."""
    found = list_lines(_GUARD, "trainmaster/api/", "trainmaster/jobs/models/")
    assert len(found) <= MOST_GUARDS, "\n".join(found)


def test_types_say_what_they_mean() -> None:
    """`Fields` and `Object` are objects of the API. What is left are callbacks and formats of others."""
    found = list_lines(_ANY, "trainmaster/api/")
    assert len(found) <= MOST_ANY, "\n".join(found)


def test_plans_are_built_with_drafts() -> None:
    """`engine.draft` collects what a pass decides, and writes the head of every patch and delete."""
    found = []
    for path in SOURCES:
        if not name(path).startswith("trainmaster/engine/"):
            calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            names = {call.id for call in calls if isinstance(call, ast.Name)}
            found += [f"{name(path)}: {made}" for made in ("Plan", "Patch", "Delete") if made in names]
    assert found == []


def test_what_is_looked_for_may_not_be_there() -> None:
    """`find_` says so with None, or with an empty text; `get_` raises, `list_` returns however many there are."""
    found = []
    for path in SOURCES:
        for node in ast.walk(parse(path.relative_to(ROOT))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.lstrip("_").startswith("find_"):
                returned = "" if node.returns is None else ast.unparse(node.returns)
                if "None" not in returned and returned != "str":
                    found.append(f"{name(path)}: {node.name} -> {returned}")
    assert found == []


def test_unit_tests_stand_where_the_modules_do() -> None:
    """A folder of `tests/unit` is one of `trainmaster` (`tools` is that of the repository), and `test_x.py` stands
    where the same part has a module `x.py`, if it has one."""
    modules: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in SOURCES:
        folder = path.parent.relative_to(ROOT / "trainmaster").as_posix()
        modules[folder.split("/")[0], path.stem].add(folder)
    strays = []
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests" / "unit").as_posix()
        part = folder.split("/")[0]
        homes = modules.get((part, path.stem.removeprefix("test_")), {folder})
        if folder not in homes or not (part == "tools" or (ROOT / "trainmaster" / folder).is_dir()):
            strays.append(f"{name(path)}: {', '.join(sorted(homes))}")
    assert not strays, "\n".join(strays)


def test_a_part_declares_its_metrics_in_one_place() -> None:
    """`trainmaster/PART/metrics.py`, from which the documentation is made."""
    declared = re.compile(r"\b(Counter|Gauge|Histogram)Spec\(")
    places = {entry.rpartition(":")[0] for entry in list_lines(declared, "trainmaster/kit/")}
    assert [place for place in places if not re.fullmatch(r"trainmaster/\w+/metrics\.py", place)] == []
