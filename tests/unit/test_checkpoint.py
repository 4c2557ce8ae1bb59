"""Checkpoints: only complete ones count, and every rank of an attempt resumes from the same one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from trainmaster import checkpoint
from trainmaster.history.checkpoints import reading
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk.results import OUTPUT, Results
from trainmaster.shim.protocol import FULL, PLAIN, ContainerSpec

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(checkpoint.DIRECTORY, str(tmp_path / "checkpoints"))
    monkeypatch.delenv(checkpoint.RESUME_FROM, raising=False)
    return checkpoint.directory()


def save(path: Path, *, as_directory: bool) -> Path:
    if as_directory:
        path.mkdir()
        (path / "weights").write_bytes(b"w")
    else:
        path.write_bytes(b"w")
    return path


@pytest.mark.parametrize("as_directory", [True, False], ids=["directory", "file"])
def test_one_that_was_not_committed_is_never_chosen(folder: Path, as_directory: bool) -> None:
    first = save(folder / "step-1", as_directory=as_directory)
    assert checkpoint.resume_from() is None
    checkpoint.commit(first, step=1)
    save(folder / "step-2", as_directory=as_directory)
    save(folder / "step-3.partial", as_directory=as_directory)
    assert checkpoint.resume_from() == first


def test_of_several_the_one_that_was_completed_last_is_chosen(folder: Path) -> None:
    for number, name in enumerate(("b", "a", "c")):
        path = save(folder / name, as_directory=True)
        checkpoint.commit(path)
        os.utime(path / checkpoint.MARKER, ns=(number, number))
    os.utime(folder / "a" / checkpoint.MARKER, ns=(9, 9))
    assert checkpoint.resume_from() == folder / "a"


def test_a_marker_made_by_hand_counts_and_a_lone_marker_does_not(folder: Path) -> None:
    (folder / "gone.pt.complete").touch()
    assert checkpoint.resume_from() is None
    save(folder / "x.pt", as_directory=False)
    (folder / "x.pt.complete").touch()
    assert checkpoint.resume_from() == folder / "x.pt"


@pytest.mark.parametrize("as_directory", [True, False], ids=["directory", "file"])
def test_one_whose_files_are_not_as_its_marker_says_is_passed_over(folder: Path, as_directory: bool) -> None:
    first = save(folder / "step-1", as_directory=as_directory)
    checkpoint.commit(first, step=1)
    os.utime(checkpoint._get_marker(first), ns=(1, 1))
    second = save(folder / "step-2", as_directory=as_directory)
    checkpoint.commit(second, step=2)
    assert checkpoint.resume_from() == second
    file = second / "weights" if as_directory else second
    file.write_bytes(b"")
    assert checkpoint.resume_from() == first
    assert "has 0 bytes instead of 1" in checkpoint.find_damage(second)
    if as_directory:
        file.unlink()
        assert checkpoint.find_damage(second) == "weights is missing"
        assert checkpoint.resume_from() == first


def test_a_marker_has_sizes_and_if_asked_digests(folder: Path) -> None:
    saved = save(folder / "a", as_directory=True)
    (saved / "link").symlink_to("weights")
    checkpoint.commit(saved, step=3, digest=True)
    assert json.loads((saved / checkpoint.MARKER).read_text()) == {
        "step": 3,
        "attempt": 0,
        "files": {"weights": {"bytes": 1, "sha256": hashlib.sha256(b"w").hexdigest()}},
    }
    checkpoint.commit(saved)
    assert json.loads((saved / checkpoint.MARKER).read_text())["files"] == {"weights": {"bytes": 1}}


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "{", '{"step": 4, "attempt": 0}', '{"files": {"x": 1}}', "[" * 99_999]
)
def test_a_marker_that_says_nothing_about_files_is_a_marker(folder: Path, text: str) -> None:
    saved = save(folder / "a", as_directory=True)
    (saved / checkpoint.MARKER).write_text(text)
    assert checkpoint.resume_from() == saved


def test_committing_what_is_not_there_says_so(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="save it before you commit it"):
        checkpoint.commit(folder / "nothing")


def test_a_program_learns_that_it_should_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checkpoint.STOP_NOTICE, str(tmp_path / "stop.json"))
    assert not checkpoint.should_stop()
    (tmp_path / "stop.json").touch()
    assert checkpoint.should_stop()


def make_pod(index: int, attempt: int, life: int = 0) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-uid": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return {"metadata": {"name": f"p{index}", "uid": f"u{index}-{attempt}-{life}", "labels": labels}}


def add_directories(root: Path, index: int, attempt: int, *, restart: int = 0, life: int = 0) -> dict[str, str]:
    spec = ContainerSpec("node", restart, ("true",), {"A": "b"}, "/")
    results = Results(root)
    return results.add_directories(
        Pod(make_pod(index, attempt, life)), "tj", spec, PLAIN, results.choose_resumable("tj")
    ).env


def test_all_ranks_of_an_attempt_resume_from_the_same_one_whenever_they_start(tmp_path: Path) -> None:
    env = add_directories(tmp_path, 0, 0)
    assert (env[checkpoint.RESUME_FROM], env[checkpoint.ATTEMPT], env["A"]) == ("", "0", "b")
    saved = save(Path(env[checkpoint.DIRECTORY]) / "one", as_directory=True)
    checkpoint.commit(saved)
    assert add_directories(tmp_path, 1, 0)[checkpoint.RESUME_FROM] == ""
    assert add_directories(tmp_path, 0, 1)[checkpoint.RESUME_FROM] == str(saved)
    later = save(Path(env[checkpoint.DIRECTORY]) / "two", as_directory=True)
    checkpoint.commit(later)
    os.utime(later / checkpoint.MARKER, ns=(2**61, 2**61))
    assert add_directories(tmp_path, 1, 1)[checkpoint.RESUME_FROM] == str(saved)
    assert add_directories(tmp_path, 1, 1, restart=1)[checkpoint.RESUME_FROM] == str(later)


def test_odd_names_and_very_many_of_them_stop_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(add_directories(tmp_path, 0, 0)[checkpoint.DIRECTORY])
    saved = save(folder / "one", as_directory=True)
    checkpoint.commit(saved)
    for name in (b"bad\xff", b"two\nlines", b"\x1b[31m"):
        checkpoint.commit(save(folder / os.fsdecode(name), as_directory=True))
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / f"pipe{checkpoint.MARKER}")
    os.utime(folder / f"pipe{checkpoint.MARKER}", ns=(0, 0))
    assert add_directories(tmp_path, 0, 1)[checkpoint.RESUME_FROM] == str(saved)
    monkeypatch.setattr(reading, "_MOST_NAMES", 0)
    assert add_directories(tmp_path, 0, 2)[checkpoint.RESUME_FROM] == ""


def test_a_resumed_job_goes_on_from_what_it_saved_before_it_was_suspended(tmp_path: Path) -> None:
    first = [add_directories(tmp_path, index, 0) for index in (0, 1)]
    assert [env[checkpoint.RESUME_FROM] for env in first] == ["", ""]
    saved = save(Path(first[0][checkpoint.DIRECTORY]) / "one", as_directory=True)
    checkpoint.commit(saved)
    assert add_directories(tmp_path, 1, 0)[checkpoint.RESUME_FROM] == "", (
        "the same Pod again, after a crash of the control plane"
    )
    assert add_directories(tmp_path, 1, 0, life=1)[checkpoint.RESUME_FROM] == str(saved)
    later = save(Path(first[0][checkpoint.DIRECTORY]) / "two", as_directory=True)
    checkpoint.commit(later)
    os.utime(later / checkpoint.MARKER, ns=(2**61, 2**61))
    assert add_directories(tmp_path, 0, 0, life=1)[checkpoint.RESUME_FROM] == str(saved), (
        "as the other rank of this round"
    )


def test_saving_under_a_name_again_takes_the_old_marker_away_first(folder: Path) -> None:
    path = checkpoint.begin(folder / "latest")
    save(path, as_directory=True)
    checkpoint.commit(path)
    assert checkpoint.resume_from() == path
    assert checkpoint.begin(path) == path
    assert checkpoint.resume_from() is None


def test_a_caught_sigterm_asks_to_stop_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_asked", [])
    before = signal.getsignal(signal.SIGTERM)
    checkpoint.catch_stop()
    try:
        assert not checkpoint.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert checkpoint.should_stop()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_a_sandbox_the_directories_are_mounted_at_fixed_paths(tmp_path: Path) -> None:
    spec = ContainerSpec("node", 0, ("true",), {}, "/")
    given = Results(tmp_path).add_directories(Pod(make_pod(0, 0)), "tj", spec, FULL)
    assert [mount.target for mount in given.mounts] == ["/trainmaster/checkpoints", "/trainmaster/outputs"]
    assert given.env[OUTPUT] == "/trainmaster/outputs"
    assert (tmp_path / "tj" / "outputs").is_dir()


def test_a_pod_that_works_for_no_trainjob_gets_nothing(tmp_path: Path) -> None:
    spec = ContainerSpec("node", 0, ("true",), {}, "/")
    assert Results(tmp_path).add_directories(Pod(make_pod(0, 0)), "", spec, PLAIN) == spec
    assert list(tmp_path.iterdir()) == []
