"""Rules for the dashboard's modules: sizes, texts in both languages, nothing from elsewhere, no markup from text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, list_files
from tools import ui_vendor

pytestmark = pytest.mark.unit

PAGE = Path("trainmaster/rest/pages/ui")
FILE_LINES = 400
LINE_LENGTH = 320
"""Markup is written as it is nested, so its lines are longer than those of code."""
_ENTRY = re.compile(r'^  "([^"]+)": (".*"),$')
_USED = re.compile(r'\b(?:t|findText)\(\s*"([^"]+)"')
_BUILT = re.compile(r"\b(?:t|findText)\(\s*`([^`$]*)\$\{[^}]*\}([^`]*)`")
_MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function")
_ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)\S+")


def list_modules() -> list[Path]:
    ours = [name for name in list_files() if name.suffix == ".js" and name.is_relative_to(PAGE)]
    return [name for name in ours if "vendor" not in name.parts]


def read_texts(language: str) -> dict[str, str]:
    """In the order of the file; a key that stands there twice is an error."""
    lines = (ROOT / PAGE / "i18n" / f"{language}.js").read_text().splitlines()
    found = [(match[1], match[2]) for line in lines if (match := _ENTRY.match(line))]
    assert len(found) == len(dict(found)) == sum(line.startswith("  ") for line in lines)
    return dict(found)


def list_values(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{\w+\}", text)))


def test_both_languages_have_the_same_keys_in_the_same_order() -> None:
    assert list(read_texts("en")) == list(read_texts("ko"))


def test_both_languages_name_the_same_values() -> None:
    english, korean = read_texts("en"), read_texts("ko")
    # For one thing English may leave out the number.
    keys = [key for key in english if not key.endswith(".one")]
    assert {key for key in keys if list_values(english[key]) != list_values(korean[key])} == set()


def test_every_text_that_a_module_asks_for_exists_and_none_is_left_over() -> None:
    keys = set(read_texts("en"))
    stems = {re.sub(r"\.(one|other)$", "", key) for key in keys}
    used, patterns = set(), []
    for name in list_modules():
        text = (ROOT / name).read_text()
        used |= set(_USED.findall(text))
        patterns += [re.compile(re.escape(begin) + r"[^ ]+" + re.escape(end)) for begin, end in _BUILT.findall(text)]
    assert used - stems == set()
    assert {key for key in stems - used if not any(pattern.fullmatch(key) for pattern in patterns)} == set()


def test_every_reason_of_the_documentation_has_a_text() -> None:
    page = (ROOT / "docs/states.md").read_text()
    reasons = set(re.findall(r"^\| (?:\w+ \| \w+ \| )?`([A-Z]\w+)` \|", page, re.MULTILINE))
    assert len(reasons) > 30
    assert {reason for reason in reasons if f"reason.{reason}" not in read_texts("en")} == set()


def test_no_module_is_a_drawer() -> None:
    long = {
        str(name): len((ROOT / name).read_text().splitlines()) for name in list_modules() if "i18n" not in name.parts
    }
    assert {name: lines for name, lines in long.items() if lines > FILE_LINES} == {}
    wide = [str(name) for name in list_modules() if max(map(len, (ROOT / name).read_text().splitlines())) > LINE_LENGTH]
    assert wide == []


def test_every_module_says_what_it_is() -> None:
    assert [str(name) for name in list_modules() if not (ROOT / name).read_text().startswith("// ")] == []


def test_text_never_becomes_markup() -> None:
    """The policy of the page forbids it, too; tests/browser tries it."""
    assert [str(name) for name in list_modules() if _MARKUP.search((ROOT / name).read_text())] == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    ours = [name for name in list_files() if name.is_relative_to(PAGE) and name.suffix != ".LICENSE"]
    found = {str(name): _ELSEWHERE.findall((ROOT / name).read_text()) for name in ours}
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


def test_vendored_files_are_what_their_record_says() -> None:
    assert ui_vendor.list_changed(ROOT / PAGE / "vendor") == [], "run: .venv/bin/python tools/ui_vendor.py"
