"""Which modules a directory of code brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.bundles.modules import list_modules

pytestmark = pytest.mark.unit


def test_files_and_directories_at_any_depth_can_be_imported(tmp_path: Path) -> None:
    for name in (
        "train.py",
        "src/mylib/__init__.py",
        "src/mylib/data.py",
        "fast.cpython-311-x86_64-linux-gnu.so",
        "a.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = list_modules(tmp_path)
    assert found is not None
    assert found == {"train", "src", "mylib", "__init__", "data", "fast"}


def test_code_that_is_gone_is_not_known(tmp_path: Path) -> None:
    assert list_modules(tmp_path / "nowhere") is None
