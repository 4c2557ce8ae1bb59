"""Where editable installs have their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.node.images.editables import list_sources

pytestmark = pytest.mark.unit


def test_directories_in_pth_files_and_finders_are_found_once(tmp_path: Path) -> None:
    site, first, second = tmp_path / "site", tmp_path / "first", tmp_path / "second" / "package"
    for folder in (site / "inside", first, second):
        folder.mkdir(parents=True)
    (second.parent / "module.py").write_text("")
    (site / "a.pth").write_text(f"{first}\nimport something\n/does/not/exist\n{site}/inside\n")
    (site / "b.pth").write_text(f"{first}\n")
    mapping = {"package": str(second), "module": str(second.parent / "module")}
    (site / "__editable___x_finder.py").write_text(f"MAPPING: dict[str, str] = {mapping!r}\nNAMESPACES = {{}}\n")
    assert list_sources([str(site)]) == (str(first), str(second), str(second.parent))


@pytest.mark.parametrize("text", ["", "MAPPING = {oops", "MAPPING: dict[str, str] = {1 + 1: x}", "\udc80"])
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "__editable___x_finder.py").write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "x.pth").symlink_to(tmp_path / "nowhere")
    assert list_sources([str(tmp_path)]) == ()
