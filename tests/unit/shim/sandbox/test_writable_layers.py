"""Writable layers: one of the attempt or of the Pod, an overlay where the kernel gives it, else a copy, made once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainmaster.shim.protocol import COPY, OVERLAY, Mount
from trainmaster.shim.sandbox import linux, rootfs
from trainmaster.shim.sandbox.rootfs import RootOptions

pytestmark = pytest.mark.unit


class Kernel:
    """Stands for the calls that need privileges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.options: list[dict[str, str]] = []
        self.opened: list[str] = []
        monkeypatch.setattr(linux, "make_tree", self.make_tree)
        monkeypatch.setattr(linux, "open_tree", self.open_tree)

    def make_tree(self, kind: str, options: dict[str, str], flags: int = 0) -> int:
        if self.refuses:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.options.append(options)
        return 7

    def open_tree(self, path: str) -> int:
        self.opened.append(path)
        return 8


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "with:colon" / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "m.py").write_text("m")
    os.symlink("pkg/m.py", folder / "link")
    return folder


def take(source: Path, layer: str = "", *, scratch: Path) -> int:
    mount = Mount("/workspace/code", str(source), OVERLAY, layer=layer)
    return rootfs._take_layer(mount, RootOptions((mount,), scratch=str(scratch)))


def test_a_layer_of_the_pod_lies_where_it_says_and_one_of_the_attempt_in_its_scratch(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(monkeypatch)
    assert take(source, f"{tmp_path}/layer", scratch=tmp_path / "scratch") == 7
    assert take(source, scratch=tmp_path / "scratch") == 7
    uppers = [options["upperdir"] for options in kernel.options]
    assert uppers == [f"{tmp_path}/layer/upper", f"{tmp_path}/scratch/layer-workspace-code/upper"]
    assert all(os.path.isdir(path) for path in uppers)
    assert kernel.options[0]["lowerdir"] == str(source).replace(":", "\\:")


def test_where_there_can_be_no_overlay_the_layer_is_a_copy_that_is_made_once(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(monkeypatch, refuses=True)
    copy = tmp_path / "layer" / COPY
    assert take(source, f"{tmp_path}/layer", scratch=tmp_path) == 8
    assert (copy / "pkg/m.py").read_text() == "m"
    assert os.readlink(copy / "link") == "pkg/m.py"
    (copy / "pkg/m.py").write_text("written by the program")
    assert take(source, f"{tmp_path}/layer", scratch=tmp_path) == 8
    assert (copy / "pkg/m.py").read_text() == "written by the program"
    assert kernel.opened == [str(copy), str(copy)]
    assert (source / "pkg/m.py").read_text() == "m"


def test_what_was_written_before_is_not_given_up_for_a_copy(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(monkeypatch)
    take(source, f"{tmp_path}/layer", scratch=tmp_path)
    (tmp_path / "layer/upper/model").write_text("x")
    kernel.refuses = True
    with pytest.raises(OSError, match="Invalid argument"):
        take(source, f"{tmp_path}/layer", scratch=tmp_path)
