"""`trainmaster history` on an archive that a test has filled; no server runs."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.unit.history.test_archive import GONE, PLACE, make_trainjob
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.cli.spans import parse_span
from trainmaster.history import logs
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordSources, build_record

pytestmark = pytest.mark.unit


class Shell:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.out = ""
        self.err = ""

    def run(self, *words: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        action, *rest = words
        code = main(["history", action, "--home", str(self.home), *rest], CommandContext({}, out, err))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    home = tmp_path / "home"
    archive = Archive.open(home / "history")
    for index in range(2):
        folder = tmp_path / str(index) / "logs" / "node"
        folder.mkdir(parents=True)
        (folder / "0.log").write_text(f"2026-01-01T00:00:00Z stdout F hello from {index}\n")
        place = str(PLACE).replace("node-0-1", f"node-0-{index}")
        logs.keep(archive.directory, place, tmp_path / str(index))
    archive.note({}, {"js": "u1"})
    event = {"metadata": {"uid": "e"}, "reason": "Done", "message": "it is", "firstTimestamp": "2026-01-01T00:10:00Z"}
    snapshot = {"data": {"runtime": "kind: ClusterTrainingRuntime\n"}}
    archive.put([build_record(RecordSources(make_trainjob("u1"), snapshot, events=[event]), GONE)])
    archive.put([build_record(RecordSources(make_trainjob("u2", "b", "Failed")))])
    archive.close()
    return Shell(home)


def test_list_shows_what_there_was_and_who_deleted_it(shell: Shell) -> None:
    assert shell.run("list") == exits.OK
    header, *lines = shell.out.splitlines()
    assert header.split()[:3] == ["NAMESPACE", "NAME", "STATE"]
    assert {line.split()[1] for line in lines} == {"a", "b"}
    assert "kubernetes-admin" in shell.out
    shell.run("list", "--state", "Failed", "-o", "json")
    assert [entry["uid"] for entry in json.loads(shell.out)] == ["u2"]


def test_get_tells_the_story_of_one_job(shell: Shell) -> None:
    assert shell.run("get", "a", "-n", "ns") == exits.OK
    assert "Deleted:    2026-01-01T01:00:00Z by kubernetes-admin (kubectl delete)" in shell.out
    assert "it is" in shell.out
    shell.run("get", "a", "-n", "ns", "-o", "json")
    assert [log["rank"] for log in json.loads(shell.out)["logs"]] == [0, 1]


def test_logs_of_all_ranks_say_where_a_line_is_from_and_of_one_they_do_not(shell: Shell) -> None:
    assert shell.run("logs", "a", "-n", "ns") == exits.OK
    assert shell.out.splitlines() == [
        "[node-0 attempt 2 node] hello from 0",
        "[node-1 attempt 2 node] hello from 1",
    ]
    shell.run("logs", "a", "-n", "ns", "--rank", "1", "--timestamps")
    assert shell.out == "2026-01-01T00:00:00Z hello from 1\n"


def test_the_daily_command_reads_the_same_logs_when_no_server_runs(shell: Shell) -> None:
    out, err = io.StringIO(), io.StringIO()
    words = ["logs", "a", "-n", "ns", "--home", str(shell.home)]
    assert main(words, CommandContext({}, out, err)) == exits.OK
    assert out.getvalue().splitlines() == ["[0] hello from 0", "[1] hello from 1"]
    assert "no server runs" in err.getvalue()
    assert main(["logs", "nobody", "--home", str(shell.home)], CommandContext({}, out, err)) == exits.NOT_RUNNING


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("get", "nobody"), exits.NOT_FOUND, "trainmaster history list"),
        (("purge", "nobody", "--yes"), exits.NOT_FOUND, "no record of a deleted job nobody"),
        (("logs", "a", "-n", "ns", "--rank", "7"), exits.NOT_FOUND, "there are: node-0 attempt 2 node"),
        (("logs", "b", "-n", "ns"), exits.FAILED, "its Pods never started"),
        (("purge",), exits.USAGE, "say what to forget"),
        (("purge", "--older-than", "soon"), exits.USAGE, "write 90s, 15m, 12h, 30d"),
        (("rerun", "a", "-n", "ns"), exits.NOT_RUNNING, "trainmaster up"),
    ],
    ids=["no record", "nothing to purge", "no rank", "no logs", "purge what", "no span", "no server"],
)
def test_what_cannot_be_done_is_said_with_the_next_step(
    shell: Shell, words: tuple[str, ...], code: int, text: str
) -> None:
    assert shell.run(*words) == code
    assert text in shell.err


def test_rerun_prints_the_manifest_without_what_the_server_added(shell: Shell) -> None:
    assert shell.run("rerun", "a", "-n", "ns", "--name", "again", "--dry-run") == exits.OK
    assert "name: again" in shell.out
    assert "uid" not in shell.out


def test_export_writes_one_file_and_never_over_another(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    assert shell.run("export", "a", str(path), "-n", "ns") == exits.OK
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert names[:3] == ["a/record.json", "a/trainjob.json", "a/runtime.yaml"]
    assert len(names) == 5
    assert shell.run("export", "a", str(path), "-n", "ns") == exits.FAILED


def test_purge_shows_its_plan_first_and_leaves_jobs_that_exist(shell: Shell) -> None:
    assert shell.run("purge", "--all") == exits.OK
    assert "add --yes" in shell.err
    assert shell.run("purge", "--all", "--yes") == exits.OK
    shell.run("list")
    assert [line.split()[1] for line in shell.out.splitlines()[1:]] == ["b"]
    assert not (shell.home / "history" / "logs" / "js").exists()


def test_before_the_first_job_there_is_nothing_and_that_is_no_error(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("list") == exits.OK
    assert "it begins with the first job" in shell.err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1d12h", 129600), ("2w", 1209600)])
def test_spans_of_time_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds
