"""The project's own configuration: make targets, dependencies, tiers, public names, lean imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest

import trainmaster
from tests.house.tree import ROOT, list_files, list_python, parse
from tools.benchrun import BENCHES, ON_CLUSTERS
from tools.testrun import PRECEDENCE, RUN_ORDER, TESTS, marker_expression, read_markers
from trainmaster.cli.commands import COMMANDS

pytestmark = pytest.mark.unit


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    targets = re.findall(r"^([a-z]+):", text, re.MULTILINE)
    explained = re.findall(r"^([a-z]+):.*## \S", text, re.MULTILINE)
    assert sorted(targets) == sorted(explained) == sorted(phony[1].split())


def test_every_dependency_has_its_reason_beside_it() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    bare = []
    reason = False
    for line in lines[: lines.index("[project.scripts]")]:
        stripped = line.strip()
        if stripped.startswith("#"):
            reason = True
        elif re.match(r'^"[A-Za-z][A-Za-z0-9_-]*[<>=;"]', stripped) and line.startswith("    "):
            if not reason and "#" not in stripped:
                bare.append(stripped)
            # One comment may head a group of lines; a new list needs a new one.
        else:
            reason = False
    assert bare == []


def test_tiers_are_the_markers() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    markers = [marker.partition(":")[0] for marker in options["markers"]]
    assert sorted(RUN_ORDER) == sorted(PRECEDENCE) == sorted(markers)


def test_a_test_with_two_markers_runs_in_the_more_demanding_tier_only() -> None:
    assert marker_expression("cluster") == "cluster"
    assert "not kube" in marker_expression("contract")
    assert "not" not in marker_expression("unit").split(" and not ")[0]


def test_the_public_names_are_these() -> None:
    public = sorted(name for name in vars(trainmaster) if not name.startswith("_"))
    # Modules that a program imports by name count as packages here.
    packages = {"checkpoint", "progress", "version"} | {
        path.name for path in (ROOT / "trainmaster").iterdir() if (path / "__init__.py").exists()
    }
    # Found when somebody asks for it, and then it stays.
    assert callable(trainmaster.report)
    assert {name for name in public if name not in packages} | {"report"} == {"connect", "report"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", trainmaster.__version__)


HEAVY = {"apsw", "orjson", "httptools", "uvloop", "cryptography", "yaml", "ssl", "asyncio"}


@pytest.mark.parametrize("command", ["version", "config"])
def test_a_command_that_needs_no_server_loads_none(command: str) -> None:
    code = (
        "import sys, io; from trainmaster.cli.main import main; from trainmaster.cli.context import CommandContext;"
        f"main([{command!r}], CommandContext({{}}, io.StringIO(), io.StringIO()));"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_folder_of_a_tool_is_part_of_the_repository() -> None:
    """Caches that a tool leaves behind hold paths of somebody's machine."""
    hidden = {name.parts[0] for name in list_files() if name.parts[0].startswith(".")}
    assert hidden <= {".ci", ".gitignore"}


def test_every_test_file_is_found_by_a_tier() -> None:
    assert [str(file) for file in TESTS.rglob("test_*.py") if not read_markers(file)] == []


def test_every_way_to_run_the_tests_scrubs_the_environment() -> None:
    """A variable of one machine must not decide; tests/unit/tools/test_scrub.py tries the list in tools/scrub.py."""
    assert (ROOT / ".ci/run").read_text().splitlines()[-2:] == ["export CI=true", "exec make test"]
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^([a-z]+):.*\n\t@(.*)$", makefile, re.MULTILINE))
    for target in ("test", "check"):
        assert recipes[target].startswith("$(RUN) tools/testrun.py"), target
    direct = [line for line in makefile.splitlines() if "-m pytest" in line]
    assert [line for line in direct if "tools/scrub.py" not in line] == []


def test_no_public_class_has_the_name_of_another() -> None:
    """Whoever searches for a name finds what it means, once."""
    places: dict[str, list[str]] = {}
    for name in list_python("trainmaster"):
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(name))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_modules_of_ours_are_imported_where_tools_see_it() -> None:
    """A name in a string is seen by neither the import rules nor the type checker; an import in a function is. Only
    commands are found by the name that was typed."""
    found = set()
    for name in list_python("trainmaster"):
        if "import_module" not in (ROOT / name).read_text():
            continue
        for node in ast.walk(parse(name)):
            is_import = isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)
            if is_import and "trainmaster" in ast.unparse(node):
                found.add(str(name))
    assert found == {"trainmaster/cli/commands/__init__.py"}


def test_every_command_is_shown_to_the_type_checker() -> None:
    tree = parse(ROOT / "trainmaster/cli/commands/__init__.py")
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "trainmaster.cli.commands"
        for alias in node.names
    ]
    checked = next(node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    assert checked is not None
    assert ast.unparse(checked) == f"({', '.join(imported)})"
    modules = [path.stem for path in (ROOT / "trainmaster/cli/commands").glob("[a-z]*.py")]
    assert sorted(COMMANDS) == sorted(imported) == sorted(modules)


def test_the_changelog_lists_versions_newest_first() -> None:
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Versions", "Upgrading"]
    released = [heading for heading in headings[2:] if heading != "Not released"]
    assert headings[2:] in (released, ["Not released", *released])
    numbers = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\)", heading) for heading in released]
    assert None not in numbers, "a heading is a version with its date, `## 0.2.0 (2026-12-01)`"
    versions = [tuple(int(part) for part in number.groups()) for number in numbers if number]
    assert versions == sorted(set(versions), reverse=True)
    current = tuple(int(part) for part in trainmaster.__version__.split("."))
    assert len(current) == 3
    assert [current, *versions] == sorted([current, *versions], reverse=True)


def test_make_bench_runs_every_bench_and_each_reports_its_promises() -> None:
    benches = {path.stem: path.read_text() for path in (ROOT / "bench").glob("[a-z]*.py")}
    assert sorted(benches) == sorted((*BENCHES, *ON_CLUSTERS))
    assert [name for name, text in benches.items() if "from bench._report import" not in text] == []
