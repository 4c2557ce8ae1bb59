"""The table of conformance lines in docs/job.md says what the tests say.

A line is covered when a test has its number in its name. Lines of the list that are not covered stand in the page with
their reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[3]
PAGE = TESTS.parent / "docs" / "job.md"
FILES = (
    Path(__file__).with_name("test_conformance.py"),
    TESTS / "flow" / "test_job_flow.py",
    TESTS / "unit" / "api" / "kindsets" / "test_job_admission.py",
    TESTS / "unit" / "apiserver" / "test_gc_lines.py",
)
COUNTS = {"KE": 18, "KI": 12, "KT": 2, "KG": 5, "KP": 3}
_LINE = re.compile(r"^def test_(k[eitgp])_(\d\d)_", re.MULTILINE)


def list_covered() -> set[str]:
    return {f"{kind.upper()}-{number}" for file in FILES for kind, number in _LINE.findall(file.read_text())}


def test_every_line_is_covered_or_named_in_the_page() -> None:
    every = {f"{kind}-{number:02}" for kind, count in COUNTS.items() for number in range(1, count + 1)}
    covered = list_covered()
    assert covered <= every
    named = set(re.findall(r"^\| (K[EITGP]-\d\d) \|", PAGE.read_text(), re.MULTILINE))
    assert every - covered == named


@pytest.mark.parametrize("kind", COUNTS)
def test_the_page_says_how_many_are_covered(kind: str) -> None:
    covered = sum(1 for line in list_covered() if line.startswith(kind))
    assert f"| {kind} | {COUNTS[kind]} | {covered} |" in PAGE.read_text()
