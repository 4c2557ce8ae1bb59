"""What a job left, as it is listed and asked for."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.history.test_archive import GONE, make_trainjob
from trainmaster.history import purging
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordSources, build_record
from trainmaster.history.results import choose, list_outputs, list_workdirs

pytestmark = pytest.mark.unit

UID = "uid-1"


def put(archive: Path, path: str, text: str = "x") -> None:
    place = archive / "results" / UID / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def put_workdir(archive: Path, pod: str, attempt: int, *names: str, kept_at: int = 1000) -> None:
    for name in names:
        put(archive, f"workdirs/{pod}-uid/files/{name}")
    put(archive, f"workdirs/{pod}-uid/about.json", json.dumps({"job": "node", "attempt": attempt, "pod": pod}))
    os.utime(archive / "results" / UID / f"workdirs/{pod}-uid/about.json", (kept_at, kept_at))


def list_paths(archive: Path) -> list[str]:
    return [output.path for output in list_outputs(archive, UID)]


def test_a_job_without_results_has_no_outputs(tmp_path: Path) -> None:
    assert list_paths(tmp_path) == []
    put(tmp_path, "checkpoints/step-1")
    assert list_paths(tmp_path) == []


def test_the_last_attempt_is_the_working_directory_and_others_are_earlier_ones(tmp_path: Path) -> None:
    put(tmp_path, "outputs/model/w.bin", "1234")
    put_workdir(tmp_path, "pod-b", 1, "loss.csv")
    put_workdir(tmp_path, "pod-a", 0, "loss.csv", "crash.txt", kept_at=5000)
    assert list_paths(tmp_path) == [
        "earlier/pod-a/crash.txt",
        "earlier/pod-a/loss.csv",
        "model/w.bin",
        "workdir/loss.csv",
    ]
    assert next(output.bytes for output in list_outputs(tmp_path, UID) if output.path == "model/w.bin") == 4


def test_of_two_pods_of_one_attempt_the_later_one_counts(tmp_path: Path) -> None:
    """A job that was suspended and resumed."""
    put_workdir(tmp_path, "pod-z", 0, "a", kept_at=2000)
    put_workdir(tmp_path, "pod-a", 0, "a", kept_at=1000)
    assert [workdir.pod for workdir in list_workdirs(tmp_path, UID)] == ["pod-z", "pod-a"]


def test_what_is_not_whole_yet_is_not_listed(tmp_path: Path) -> None:
    put(tmp_path, "workdirs/.pod-uid.partial/files/a")
    assert list_paths(tmp_path) == []


def test_a_note_that_a_power_cut_left_empty_hides_nothing(tmp_path: Path) -> None:
    put(tmp_path, "workdirs/pod-uid/files/a")
    put(tmp_path, "workdirs/pod-uid/about.json", "")
    put(tmp_path, "workdirs/half-gone/files/a")
    assert list_paths(tmp_path) == ["workdir/a"]


def test_links_that_lead_out_are_not_listed(tmp_path: Path) -> None:
    put(tmp_path, "outputs/d/real")
    folder = tmp_path / "results" / UID / "outputs"
    os.symlink("d/real", folder / "good")
    os.symlink("/etc/passwd", folder / "bad")
    os.symlink("../../other-job/outputs/x", folder / "worse")
    assert [(output.path, output.link) for output in list_outputs(tmp_path, UID)] == [
        ("d/real", ""),
        ("good", "d/real"),
    ]


def test_files_are_asked_for_by_name_by_directory_and_as_the_program_wrote_them(tmp_path: Path) -> None:
    put(tmp_path, "outputs/model/a")
    put(tmp_path, "outputs/model/b")
    put(tmp_path, "outputs/modelling")
    put_workdir(tmp_path, "p", 0, "loss.csv", "model/c")
    found = list_outputs(tmp_path, UID)

    def ask(*names: str) -> tuple[list[str], list[str]]:
        chosen, missing = choose(found, names)
        return [output.path for output in chosen], missing

    assert ask("model/") == (["model/a", "model/b"], [])
    assert ask("loss.csv") == (["workdir/loss.csv"], [])
    assert ask("workdir", "./model/a") == (["workdir/loss.csv", "workdir/model/c", "model/a"], [])
    assert ask("nothing", "../../etc/passwd") == ([], ["nothing", "../../etc/passwd"])
    assert len(ask(".")[0]) == len(found)


def test_what_was_kept_after_a_job_was_deleted_counts_for_the_limit_of_history(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.put([replace(build_record(RecordSources(make_trainjob(UID)), GONE), kept_bytes=10)])
    assert purging.trim(archive, before="", most_bytes=10_000) == []
    put(tmp_path, "outputs/a", "x" * 100)
    put(tmp_path, "workdirs/p/files/b", "x" * 20_000)
    assert purging.trim(archive, before="", most_bytes=1_000_000) == []
    record = archive.find(UID)
    assert record is not None
    assert record.kept_bytes == 20_100
    assert purging.trim(archive, before="", most_bytes=10_000) == [UID]
    assert not (tmp_path / "results" / UID).exists()
    archive.close()


def test_a_size_that_is_only_claimed_does_not_count(tmp_path: Path) -> None:
    """Else whoever leaves a sparse file would make history forget the records of others."""
    put(tmp_path, "outputs/a", "12345")
    for name in ("b", "c"):
        with (tmp_path / "results" / UID / "outputs" / name).open("wb") as file:
            file.truncate(1 << 42)
    os.mkfifo(tmp_path / "results" / UID / "outputs" / "pipe")
    os.symlink("/proc", tmp_path / "results" / UID / "outputs" / "link")
    assert purging.measure_results(tmp_path, UID) == 5
    assert purging.measure_results(tmp_path, "unknown") == 0
