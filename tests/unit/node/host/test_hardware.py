"""What the kernel says about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.node.host import hardware

pytestmark = pytest.mark.unit


def test_file_cache_of_a_container_counts_as_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_GROUPS", tmp_path)
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("990\n")
    assert hardware.read_free_memory() == 10
    (tmp_path / "memory.stat").write_text("anon 90\ninactive_file 800\nactive_file 100\n")
    assert hardware.read_free_memory() == 810
