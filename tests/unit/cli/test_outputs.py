"""`trainmaster outputs` and `trainmaster code` on a home without a server."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import orjson
import pytest

from tests.support.deep import deep_tree
from tests.unit.history.test_archive import GONE, make_trainjob
from trainmaster.api.code import build_annotations
from trainmaster.api.meta import Object
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.commands.outputs import copy, get_directory
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.cli.outputs import describe_outputs
from trainmaster.cli.spans import parse_size
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordSources, build_record
from trainmaster.history.results import list_outputs

pytestmark = pytest.mark.unit


class Shell:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.out = ""
        self.err = ""

    def run(self, command: str, action: str, *rest: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        where = ["-n", "ns"] if command == "outputs" else []
        code = main([command, action, "--home", str(self.home), *where, *rest], CommandContext({}, out, err))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def put(self, uid: str, name: str, text: str) -> None:
        path = get_directory(Home(self.home), uid) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Of job `a` two are gone, and one exists; `b` is gone."""
    shell = Shell(tmp_path / "home")
    archive = Archive.open(shell.home / "history")
    archive.put([build_record(RecordSources(make_trainjob("u1", "a")), GONE)])
    archive.put([build_record(RecordSources(make_trainjob("u2", "b")), GONE)])
    exists: Object = make_trainjob("u3", "a")
    archive.note({"u3": orjson.dumps(exists)}, {})
    archive.close()
    shell.put("u1", "old.txt", "old")
    shell.put("u2", "model/w.bin", "1234")
    shell.put("u2", "notes.txt", "n")
    shell.put("u3", "new.txt", "new")
    return shell


def test_the_files_of_a_deleted_job_are_listed(shell: Shell) -> None:
    assert shell.run("outputs", "list", "b") == exits.OK
    assert [line.split()[:3] for line in shell.out.splitlines()] == [
        ["PATH", "SIZE", "MODIFIED"],
        ["model/w.bin", "4", "B"],
        ["notes.txt", "1", "B"],
    ]
    assert shell.run("outputs", "list", "b", "-o", "json") == exits.OK
    assert [entry["path"] for entry in json.loads(shell.out)] == ["model/w.bin", "notes.txt"]


def test_the_job_that_exists_goes_before_those_that_are_gone(shell: Shell) -> None:
    shell.run("outputs", "list", "a")
    assert "new.txt" in shell.out
    shell.run("outputs", "list", "a", "--uid", "u1")
    assert "old.txt" in shell.out


def test_files_are_copied_and_nothing_is_overwritten_unasked(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "to"
    assert shell.run("outputs", "get", "b", "--to", str(target)) == exits.OK
    assert (target / "model/w.bin").read_text() == "1234"
    assert shell.out == f"2 files, 5 B: {target}\n"
    (target / "notes.txt").write_text("mine")
    assert shell.run("outputs", "get", "b", "notes.txt", "--to", str(target)) == exits.FAILED
    assert "notes.txt is in" in shell.err
    assert "--overwrite" in shell.err
    assert (target / "notes.txt").read_text() == "mine"
    assert shell.run("outputs", "get", "b", "notes.txt", "--to", str(target), "--overwrite") == exits.OK
    assert (target / "notes.txt").read_text() == "n"
    assert sorted(path.name for path in target.iterdir()) == ["model", "notes.txt"]


def test_names_and_trees_that_are_traps_harm_nobody(shell: Shell, tmp_path: Path) -> None:
    folder = get_directory(Home(shell.home), "u2")
    for name in (b"\x1b[2Jclear", b"two\nlines", b"bad\xff"):
        (folder / os.fsdecode(name)).write_text("odd")
    os.mkfifo(folder / "pipe")
    os.symlink("/etc", folder / "etc")
    os.symlink(".", folder / "here")
    os.symlink("here/here/../../../../..", folder / "dots")
    with deep_tree(folder, 3 * sys.getrecursionlimit()):
        check_traps(shell, tmp_path / "to")


def check_traps(shell: Shell, target: Path) -> None:
    assert shell.run("outputs", "list", "b") == exits.OK
    assert "\x1b" not in shell.out
    assert shell.run("outputs", "list", "b", "-o", "json") == exits.OK
    shell.out.encode()
    names = ["model", "here", "two\nlines", os.fsdecode(b"bad\xff")]
    assert shell.run("outputs", "get", "b", *names, "--to", str(target)) == exits.OK
    assert len(os.listdir(target)) == 4
    assert shell.run("outputs", "get", "b", "etc", "--to", str(target)) == exits.NOT_FOUND
    assert shell.run("outputs", "get", "b", "pipe", "--to", str(target)) == exits.NOT_FOUND


@pytest.mark.parametrize("became", ["link", "pipe", "nothing", "linked directory"])
def test_a_file_that_becomes_something_else_is_not_copied(tmp_path: Path, became: str) -> None:
    """A job that runs can do that between the listing and the copy."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "w").write_text("secret")
    outputs = tmp_path / "results" / "u" / "outputs"
    (outputs / "model").mkdir(parents=True)
    file = outputs / "model" / "w"
    file.write_text("own")
    (found,) = list_outputs(tmp_path, "u")
    file.unlink()
    if became == "link":
        file.symlink_to(tmp_path / "secret" / "w")
    if became == "pipe":
        os.mkfifo(file)
    if became == "linked directory":
        file.parent.rmdir()
        file.parent.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"link|file|No such"):
        copy(found, tmp_path / "to" / "w")
    assert os.listdir(tmp_path / "to") == []


def test_without_a_target_a_directory_of_the_jobs_name_is_made(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell.run("outputs", "get", "b", "model") == exits.OK
    assert (tmp_path / "b-outputs/model/w.bin").exists()


def test_what_is_not_there_is_said_with_the_command_that_helps(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("outputs", "list", "nobody") == exits.NOT_FOUND
    assert "`trainmaster history list`" in shell.err
    assert shell.run("outputs", "get", "b", "nothing") == exits.NOT_FOUND
    assert "b has left no nothing: `trainmaster outputs list b`" in shell.err
    empty = Shell(tmp_path / "empty")
    assert empty.run("outputs", "list", "b") == exits.NOT_FOUND


def test_one_line_says_how_to_get_them(shell: Shell) -> None:
    home = Home(shell.home)
    assert describe_outputs(home, "u2", "b") == "outputs: 2 files, 5 B: trainmaster outputs get b"
    assert describe_outputs(home, "u3", "a", "team") == "outputs: 1 file, 3 B: trainmaster outputs get a -n team"
    assert describe_outputs(home, "nobody", "b") == ""


def test_pack_prints_the_digest_and_list_shows_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.py").write_text("x")
    assert shell.run("code", "pack", str(tmp_path / "source")) == exits.OK
    digest = shell.out.strip()
    assert digest.startswith("sha256:")
    assert shell.err == "1 file, 1 B\n"
    assert shell.run("code", "pack", str(tmp_path / "source"), "-o", "json") == exits.OK
    data = json.loads(shell.out)
    assert data["volume"]["csi"]["volumeAttributes"] == {"digest": digest}
    assert data["annotations"] == {"trainmaster.dev/code-digest": digest}
    assert shell.run("code", "list") == exits.OK
    assert digest in shell.out


def test_pack_says_what_is_wrong(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    assert shell.run("code", "pack", str(tmp_path / "nowhere")) == exits.FAILED
    assert "is not a directory" in shell.err
    (tmp_path / "big").write_bytes(b"x" * 2048)
    assert shell.run("code", "pack", str(tmp_path), "--code-limit", "1Ki") == exits.FAILED
    assert "more than the limit of 1.0 KiB" in shell.err
    assert shell.run("code", "pack", str(tmp_path), "--code-limit", "much") == exits.USAGE
    assert shell.run("code", "list") == exits.OK


@pytest.mark.parametrize(("text", "want"), [("12", 12), ("2Ki", 2048), ("1.5Gi", 3 << 29), ("2G", 2 * 10**9)])
def test_sizes_are_read(text: str, want: int) -> None:
    assert parse_size(text) == want


def test_the_record_names_the_code_the_commit_and_the_outputs(tmp_path: Path) -> None:
    trainjob: Object = make_trainjob("u1", "a")
    trainjob["metadata"]["annotations"] = build_annotations("sha256:12", "abcdef", True)
    archive = Archive.open(tmp_path / "home/history")
    archive.put([build_record(RecordSources(trainjob), GONE)])
    archive.close()
    shell = Shell(tmp_path / "home")
    shell.put("u1", "w.bin", "1234")
    assert shell.run("history", "get", "a", "-n", "ns") == exits.OK
    assert "Code:       sha256:12, commit abcdef with changes\n" in shell.out
    assert "Outputs:    1, 4 bytes: `trainmaster outputs list a -n ns`\n" in shell.out
