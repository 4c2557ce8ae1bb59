"""Every line of the conformance checklist for training-operator has a test or a recorded case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.cases import list_cases

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[3]
FILES = (
    *sorted(Path(__file__).parent.glob("test_lines_[!t]*.py")),
    TESTS / "unit" / "api" / "v1jobs" / "test_lines_admission.py",
    TESTS / "flow" / "test_v1_flow.py",
    TESTS / "e2e" / "test_training_sdk.py",
)
LINES = (
    *(f"C{number:02}" for number in (*range(1, 14), *range(20, 32), *range(40, 44))),
    *(f"P{number:02}" for number in range(1, 9)),
    *(f"T{number:02}" for number in range(1, 9)),
    *(f"M{number:02}" for number in range(1, 8)),
    *("X01", "X02", "D01", "D02", "J01"),
    *(f"S{number:02}" for number in range(1, 10)),
)
RECORDED = {
    "C03": "1.8/clean-tf-running",
    "C04": "1.8/clean-pt-all",
    "C27": "1.8/ttl-3-failed",
    "C28": "1.8/ttl-3",
}


def list_tested() -> set[str]:
    names = re.findall(r"^def test_((?:[cptmxdjs]\d\d_)+)", "".join(map(Path.read_text, FILES)), re.MULTILINE)
    return {line.upper() for name in names for line in name.rstrip("_").split("_")}


def test_every_line_is_tested_or_recorded() -> None:
    tested = list_tested()
    assert tested <= set(LINES)
    assert sorted(LINES) == sorted([*tested, *RECORDED])


def test_recorded_lines_name_cases_that_exist() -> None:
    assert set(RECORDED.values()) <= set(list_cases())
