"""The tables in docs/trainjobs.md say what the tests and the code say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "trainjobs.md"
FILES = (
    *sorted(Path(__file__).parent.glob("test_lines_[!t]*.py")),
    ROOT / "tests" / "flow" / "test_trainjob_lines.py",
    ROOT / "tests" / "unit" / "apiserver" / "http" / "subresources" / "test_progress.py",
    ROOT / "tests" / "node" / "test_progress.py",
)
COUNTS = {"C": 31, "W": 67, "S": 5, "I": 6, "E": 12}
_TEST = re.compile(r"def test_[cwsie]_\d{3}_|id=\"[CWSIE]-\d{3}[^\"]*\"")
_LINE = re.compile(r"([cwsie])[-_](\d{3})", re.IGNORECASE)


def list_covered() -> set[str]:
    found = (_LINE.search(name) for file in FILES for name in _TEST.findall(file.read_text()))
    return {f"{line[1].upper()}-{line[2]}" for line in found if line is not None}


def test_every_line_is_covered_or_named_in_the_page() -> None:
    every = {f"{kind}-{number:03}" for kind, count in COUNTS.items() for number in range(1, count + 1)}
    covered = list_covered()
    assert covered <= every
    assert every - covered == set(re.findall(r"^\| ([CWSIE]-\d{3}) \|", PAGE.read_text(), re.MULTILINE))


@pytest.mark.parametrize("kind", COUNTS)
def test_the_page_says_how_many_are_covered(kind: str) -> None:
    covered = sum(1 for line in list_covered() if line.startswith(kind))
    assert f"| {kind} | {COUNTS[kind]} | {covered} |" in PAGE.read_text()


def test_every_reason_for_waiting_is_in_the_page() -> None:
    text = PAGE.read_text()
    code = "".join(path.read_text() for path in (ROOT / "trainmaster" / "controllers" / "trainjob").glob("*.py"))
    reasons = {
        *re.findall(r"Waiting\(\"(\w+)\"", code),
        *re.findall(r"^(?:INVALID|NOT_FOUND|MISSING|TERMINATING) = \"(\w+)\"", code, re.MULTILINE),
    }
    assert {"RuntimeNotFound", "Refused", "JobSetMissing"} <= reasons
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()
