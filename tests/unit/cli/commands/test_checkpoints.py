"""`trainmaster checkpoints` on a home without a server."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import orjson
import pytest

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import commit
from tests.unit.history.test_archive import GONE, make_trainjob
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordSources, build_record

pytestmark = pytest.mark.unit


class Shell:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.out = ""
        self.err = ""

    def run(self, action: str, *rest: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        arguments = ["checkpoints", action, "--home", str(self.home), "-n", "ns", *rest]
        code = main(arguments, CommandContext({}, out, err, io.StringIO()))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def list_names(self, job: str = "b") -> list[str]:
        assert self.run("list", job, "-o", "json") == exits.OK
        return [item["name"] for item in json.loads(self.out)]

    @property
    def folder(self) -> Path:
        return saved.get_folder(self.home / "history", "u2")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """`a` exists, and `b` is gone, with checkpoints of steps 100 to 500."""
    shell = Shell(tmp_path / "home")
    archive = Archive.open(shell.home / "history")
    archive.put([build_record(RecordSources(make_trainjob("u2", "b")), GONE)])
    archive.note({"u3": orjson.dumps(make_trainjob("u3", "a"))}, {})
    archive.close()
    for step in (100, 200, 300, 400, 500):
        commit(saved.save_torch(shell.folder / f"step-{step}.pt"), step=step, at=step, digest=True)
    return shell


def test_checkpoints_of_a_deleted_job_are_listed(shell: Shell) -> None:
    os.truncate(shell.folder / "step-500.pt", 70)
    assert shell.run("list", "b") == exits.OK
    lines = shell.out.splitlines()
    assert lines[0].split() == ["NAME", "STEP", "ATTEMPT", "SIZE", "FORMAT", "STATE", "AGE", "WHY"]
    assert lines[1].split()[:3] == ["step-500.pt", "500", "0"]
    assert "incomplete" in lines[1] and "has 70 bytes, and its marker says" in lines[1]
    assert "newest complete one" in lines[2]
    assert shell.run("list", "b", "-o", "json") == exits.OK
    newest = json.loads(shell.out)[1]
    size = (shell.folder / "step-400.pt").stat().st_size
    assert newest == {
        "name": "step-400.pt", "place": "checkpoints", "format": "torch", "step": 400, "attempt": 0, "bytes": size,
        "files": 1, "complete": True, "committed": True, "problem": None, "modified": "1970-01-01T00:06:40Z",
        "pinned": False, "kept": ["newest"], "from": None,
    }  # fmt: skip


def test_a_job_without_any_and_one_that_is_unknown(shell: Shell) -> None:
    assert shell.run("list", "a") == exits.OK
    assert "no checkpoints so far" in shell.err
    assert shell.run("list", "nosuch") == exits.NOT_FOUND
    assert shell.run("verify", "a") == exits.NOT_FOUND
    assert shell.run("get", "b", "@7") == exits.NOT_FOUND
    assert "no checkpoint of step 7" in shell.err and "checkpoints list b" in shell.err


def test_names_that_would_control_a_terminal_do_not(shell: Shell) -> None:
    commit(saved.save_file(shell.folder / "\x1b[2Jclear\n"))
    assert shell.run("list", "b") == exits.OK
    assert "\\x1b[2Jclear\\n" in shell.out and "\x1b" not in shell.out
    assert shell.run("pin", "b", "\\x1b[2Jclear\\n") == exits.OK


def test_verify_names_the_damaged_file(shell: Shell) -> None:
    assert shell.run("verify", "b", "@100") == exits.OK
    assert shell.out.startswith("step-100.pt: whole (1 files, ") and "1 compared with their SHA-256" in shell.out
    content = bytearray((shell.folder / "step-200.pt").read_bytes())
    content[content.rfind(b"www")] ^= 1
    (shell.folder / "step-200.pt").write_bytes(content)
    assert shell.run("verify", "b") == exits.FAILED
    assert [line for line in shell.out.splitlines() if ": whole" not in line] == [
        "step-200.pt: step-200.pt has other bytes in step-200/data/0 than were written: the checksum differs"
    ]
    assert shell.run("verify", "b", "step-200.pt", "-o", "json") == exits.FAILED
    assert len(json.loads(shell.out)[0]["problems"]) == 1


def test_one_is_copied_out(shell: Shell, tmp_path: Path) -> None:
    here = tmp_path / "here"
    assert shell.run("get", "b", "@200", str(here)) == exits.OK
    assert (here / "step-200.pt").read_bytes() == (shell.folder / "step-200.pt").read_bytes()
    assert shell.run("get", "b", "@200", str(here)) == exits.FAILED
    assert "exists" in shell.err
    assert shell.run("get", "b", "", str(here)) == exits.OK
    assert (here / "step-500.pt").exists()


def test_prune_shows_its_plan_and_asks(shell: Shell) -> None:
    assert shell.run("prune", "b") == exits.USAGE
    assert shell.run("prune", "b", "--keep-last", "2", "--keep-every", "300", "--dry-run") == exits.OK
    assert [line.split()[0] for line in shell.out.splitlines()] == ["NAME", "step-200.pt", "step-100.pt"]
    assert "would remove 2 of 5" in shell.err
    assert shell.run("prune", "b", "--keep-last", "2") == exits.FAILED
    assert "--yes" in shell.err
    assert len(shell.list_names()) == 5
    assert shell.run("pin", "b", "@100") == exits.OK
    assert shell.run("prune", "b", "--keep-last", "2", "--keep-every", "300", "--yes") == exits.OK
    assert "removed 1" in shell.out
    assert shell.list_names() == ["step-500.pt", "step-400.pt", "step-300.pt", "step-100.pt"]
    assert shell.run("unpin", "b", "step-100.pt") == exits.OK
    assert shell.run("prune", "b", "--keep-last", "1", "--yes") == exits.OK
    assert shell.list_names() == ["step-500.pt"]
    assert shell.run("prune", "b", "--keep-last", "1", "--yes") == exits.OK
    assert "nothing to remove" in shell.out
    assert sorted(path.name for path in shell.folder.iterdir()) == ["step-500.pt", "step-500.pt.complete"]


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "9" * 30])
def test_numbers_that_are_none_are_refused(shell: Shell, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run("prune", "b", f"--keep-last={number}") == exits.USAGE
    assert "is not a number above 0" in capsys.readouterr().err


def test_incomplete_ones_are_removed_when_asked(shell: Shell) -> None:
    os.truncate(shell.folder / "step-100.pt", 10)
    saved.save_file(shell.folder / "step-600.partial")
    assert shell.run("prune", "b", "--incomplete", "--yes") == exits.OK
    assert shell.list_names() == ["step-600.partial", "step-500.pt", "step-400.pt", "step-300.pt", "step-200.pt"]
