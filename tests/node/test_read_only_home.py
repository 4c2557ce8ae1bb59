"""A home on a disk that became read-only: what is there can be read, and every command says what is wrong."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.history.test_archive import make_record
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.history.archive import Archive
from trainmaster.shim.protocol import Paths

pytestmark = pytest.mark.node


def run(home: Path, *arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main([*arguments, "--home", str(home)], CommandContext({}, out, err))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = Home(tmp_path / "home")
    home.prepare()
    archive = Archive.open(home.root / "history")
    archive.put([make_record()])
    archive.close()
    pod = home.root / "pods" / "some-uid"
    pod.mkdir(parents=True)
    Path(Paths(str(pod)).lock).touch()
    subprocess.run(["mount", "--bind", home.root, home.root], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home.root], check=True)
        yield home.root
    finally:
        subprocess.run(["umount", home.root], check=True)


def test_what_is_there_can_be_read_and_nothing_is_started(home: Path) -> None:
    code, out, err = run(home, "history", "list")
    assert (code, err) == (exits.OK, "") and "Complete" in out
    code, out, err = run(home, "doctor")
    assert "CHECK" in out, err
    code, out, err = run(home, "up", "--detach")
    assert code == exits.FAILED
    assert err == f"trainmaster: the home {home} cannot be used: Read-only file system: choose another with --home\n"
