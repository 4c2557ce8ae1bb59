"""Documents must not drift: every path they name exists, every page is reachable, every setting and command is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, list_files
from tools import limits_page, metrics_page
from tools.settings_page import build_page
from trainmaster.cli import exits
from trainmaster.cli.commands import COMMANDS

pytestmark = pytest.mark.unit

_PATH = re.compile(r"`([A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-*{},]+)*/?)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_KEY = re.compile(r"trainmaster\\?\.[a-z]+/[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
"""A label or annotation of ours; in a JSON path the dot is escaped."""
_TOP = {"trainmaster", "tests", "tools", "docs", "bench", "examples"}
_FILES = (".py", ".md", ".toml", ".yaml", ".sql", ".json")


def list_documents() -> list[Path]:
    return [name for name in list_files() if name.suffix == ".md"]


def list_tree_paths(text: str) -> list[str]:
    """Paths in the indented tree of ARCHITECTURE.md: `  api/   meaning` below `trainmaster/`."""
    paths = []
    folder = ""
    for line in text.splitlines():
        if match := re.match(r"^([a-z]+/)\s", line + " "):
            folder = match[1]
        elif match := re.match(r"^  ([a-z0-9_]+/?)\s", line + " "):
            paths.append(folder + match[1])
    return paths


@pytest.mark.parametrize("name", list_documents(), ids=str)
def test_every_path_that_a_document_names_exists(name: Path) -> None:
    text = (ROOT / name).read_text()
    missing = []
    for path in _PATH.findall(text):
        first = path.split("/")[0]
        if "/" not in path or first not in _TOP or "*" in path or "{" in path:
            continue
        if not (ROOT / path).exists():
            missing.append(path)
    for link in _LINK.findall(text):
        if "://" not in link and not link.startswith("mailto:") and not (ROOT / name.parent / link).exists():
            missing.append(link)
    assert missing == []


def test_every_label_and_annotation_that_a_document_names_exists() -> None:
    texts = {name: (ROOT / name).read_text() for name in list_files() if name.suffix in (".md", ".py", ".sh", ".yaml")}
    known = {key for name, text in texts.items() if name.parts[0] == "trainmaster" for key in _KEY.findall(text)}
    named = {
        (str(name), key.replace("\\", ""))
        for name, text in texts.items()
        if name.suffix == ".md" or name.parts[0] in ("examples", "deploy")
        for key in _KEY.findall(text)
    }
    assert {where for where in named if where[1] not in known} == set()


def test_every_folder_in_the_tree_of_the_architecture_exists_and_none_is_forgotten() -> None:
    block = re.search(r"```\n(trainmaster/\n.*?)```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL)
    assert block is not None
    named = set(list_tree_paths(block[1]))
    assert {path for path in named if not (ROOT / path).exists()} == set()
    files = [name.parts for name in list_files()]
    parts = {f"{parts[0]}/{parts[1]}/" for parts in files if parts[0] in ("trainmaster", "tests") and len(parts) > 2}
    assert parts - named == set()


def test_every_page_of_the_documentation_is_linked_from_its_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    linked = {(Path("docs") / link) for link in _LINK.findall(index) if "://" not in link}
    pages = {name for name in list_documents() if name.parts[0] == "docs" and name.name != "index.md"}
    assert pages - linked == set()


def test_the_limits_page_is_what_the_code_says() -> None:
    text = (ROOT / "docs/limits.md").read_text()
    assert text == limits_page.build_page(text), "run: .venv/bin/python tools/limits_page.py"


def test_the_metrics_page_is_what_the_code_says() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    assert text == metrics_page.build_page(text), "run: .venv/bin/python tools/metrics_page.py"


def test_the_settings_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs/settings.md").read_text() == build_page(), "run: .venv/bin/python tools/settings_page.py"


def test_the_command_line_page_tells_every_command_and_exit_code() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert [name for name in COMMANDS if f"`trainmaster {name}" not in page] == []
    codes = [value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)]
    assert [code for code in codes if f"| {code} |" not in page] == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(name.name[:4]) for name in list_documents() if name.parts[:2] == ("docs", "decisions"))
    assert numbers == list(range(1, len(numbers) + 1))
