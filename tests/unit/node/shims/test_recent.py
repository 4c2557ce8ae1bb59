"""Which environments a server remembers for the next one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainmaster.node.shims.learned import RecentUses, WarmUse

pytestmark = pytest.mark.unit

USE = WarmUse("default", "/env", True, (("PATH", "/bin"),), ("RANK",))


def test_uses_are_kept_with_the_newest_last_and_only_the_last_ones(tmp_path: Path) -> None:
    root = tmp_path / "environments" / "imports"
    recent = RecentUses(root)
    assert recent.list() == []
    others = [WarmUse("team", f"/env{number}") for number in range(4)]
    for use in (USE, *others[:3], USE):
        recent.note(use)
    assert RecentUses(root).list() == [*others[:3], USE]
    recent.note(others[3])
    assert RecentUses(root).list() == [*others[1:3], USE, others[3]]
    assert stat.S_IMODE((root / "recent.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"namespace": "a"}]', "\xff", '[{"environ": 1}]'])
def test_a_file_of_another_version_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "recent.json").write_text(content, encoding="latin-1")
    assert RecentUses(tmp_path).list() == []
    RecentUses(tmp_path).note(USE)
    assert RecentUses(tmp_path).list() == [USE]
