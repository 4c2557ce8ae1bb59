"""The table of conformance lines in docs/jobset.md says what the tests say.

A line is covered when a test, or one of its cases, has its number in its name. Lines of the list that are not covered
stand in the page with their reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "jobset.md"
FILES = (
    *sorted(Path(__file__).parent.glob("test_lines_[!t]*.py")),
    ROOT / "tests" / "unit" / "api" / "kindsets" / "test_jobset_admission.py",
    ROOT / "tests" / "unit" / "api" / "kindsets" / "jobset_cases.py",
    ROOT / "tests" / "flow" / "test_jobset_flow.py",
)
COUNTS = {"JI": 55, "JW": 15, "JU": 10, "JE": 15}
_TEST = re.compile(r"def test_\w+|id=\"[^\"]*\"|^    \"[^\"]*\": ", re.MULTILINE)
_LINE = re.compile(r"(JI|JW|JU|JE)[-_](\d\d)", re.IGNORECASE)
# `test_jw_02_and_03_and_06_...` names three lines of one list.
_MORE = re.compile(r"_and_(\d\d)(?=_)")


def list_covered() -> set[str]:
    covered: set[str] = set()
    for file in FILES:
        for found in _TEST.findall(file.read_text()):
            lines = _LINE.findall(found)
            covered |= {f"{kind.upper()}-{number}" for kind, number in lines}
            covered |= {f"{lines[0][0].upper()}-{number}" for number in _MORE.findall(found) if lines}
    return covered


def list_uncovered_in_page() -> set[str]:
    rows = re.findall(r"^\| ((?:JI|JW|JU|JE)-\d\d) \|", PAGE.read_text(), re.MULTILINE)
    return set(rows)


def test_every_line_is_covered_or_named_in_the_page() -> None:
    every = {f"{kind}-{number:02}" for kind, count in COUNTS.items() for number in range(1, count + 1)}
    covered = list_covered()
    assert covered <= every
    assert every - covered == list_uncovered_in_page()


@pytest.mark.parametrize("kind", COUNTS)
def test_the_page_says_how_many_are_covered(kind: str) -> None:
    covered = sum(1 for line in list_covered() if line.startswith(kind))
    assert f"| {kind} | {COUNTS[kind]} | {covered} |" in PAGE.read_text()
