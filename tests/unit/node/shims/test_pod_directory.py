"""What a Pod directory means after a crash at any moment of a container's life."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.node.shims.pod_directory import FoundAttempt, read_found
from trainmaster.shim.processes import read_boot_id
from trainmaster.shim.protocol import (
    ContainerSpec,
    Exited,
    Mount,
    Paths,
    ProcessIdentity,
    ResourceLimits,
    SandboxSpec,
    Started,
    decode,
    encode,
    write_whole,
)

pytestmark = pytest.mark.unit

POD = SandboxSpec("u", "p", "default", "host", hosts=(("10.0.0.1", "a", "b"),), limits=ResourceLimits(memory=5))
SPEC = ContainerSpec("main", 0, ("a", "b"), {"K": "v"}, "/", mounts=(Mount("/t", "/s"),), devices=("nvidia0",))
STARTED = Started(7, 1.0)
EXITED = Exited(3, 2.0)


def make_pod(tmp_path: Path, *, boot_id: str = "", **records: Started | Exited) -> Paths:
    paths = Paths(str(tmp_path / "u"))
    os.makedirs(f"{paths.directory}/run")
    write_whole(paths.pod, encode(POD))
    write_whole(paths.identity, encode(ProcessIdentity(1, 2, boot_id or read_boot_id())))
    write_whole(paths.spec("main", 0), encode(SPEC))
    for name, record in records.items():
        path = paths.started("main", 0) if name == "started" else paths.exited("main", 0)
        write_whole(path, encode(record))
    return paths


def test_specs_survive_their_way_to_disk() -> None:
    assert decode(SandboxSpec, encode(POD)) == POD
    assert decode(ContainerSpec, encode(SPEC)) == SPEC


def test_an_intent_alone_was_never_begun(tmp_path: Path) -> None:
    found = read_found(make_pod(tmp_path), alive=False)
    assert found.attempts == (FoundAttempt("main", 0),)
    assert (found.pod, found.list_lost(), found.rebooted) == (POD, [], False)


@pytest.mark.parametrize("alive", [True, False])
def test_a_begun_attempt_runs_with_a_living_shim_and_is_lost_without(tmp_path: Path, alive: bool) -> None:
    found = read_found(make_pod(tmp_path, started=STARTED), alive=alive)
    assert found.attempts == (FoundAttempt("main", 0, STARTED),)
    assert found.list_lost() == ([] if alive else [FoundAttempt("main", 0, STARTED)])


def test_an_attempt_that_ended_is_known_whatever_became_of_the_shim(tmp_path: Path) -> None:
    found = read_found(make_pod(tmp_path, started=STARTED, exited=EXITED), alive=False)
    assert found.get_newest() == {"main": FoundAttempt("main", 0, STARTED, EXITED)}
    assert found.list_lost() == []


def test_a_mark_that_is_still_empty_counts_as_begun(tmp_path: Path) -> None:
    paths = make_pod(tmp_path)
    Path(paths.started("main", 0)).touch()
    assert [attempt.number for attempt in read_found(paths, alive=False).list_lost()] == [0]


def test_another_boot_of_the_machine_is_noticed(tmp_path: Path) -> None:
    assert read_found(make_pod(tmp_path, boot_id="earlier", started=STARTED), alive=False).rebooted


def test_the_newest_attempt_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    paths = make_pod(tmp_path, started=STARTED, exited=EXITED)
    for number in (2, 10):
        write_whole(paths.started("main", number), encode(Started(number, 1.0)))
    assert read_found(paths, alive=True).get_newest()["main"].number == 10


def test_what_is_half_written_is_not_there(tmp_path: Path) -> None:
    paths = make_pod(tmp_path, started=STARTED)
    Path(paths.exited("main", 0) + ".tmp").write_text('{"code"')
    assert read_found(paths, alive=False).list_lost() == [FoundAttempt("main", 0, STARTED)]


def test_a_directory_that_is_not_there_is_a_pod_that_was_never_begun(tmp_path: Path) -> None:
    found = read_found(Paths(str(tmp_path / "none")), alive=False)
    assert (found.pod, found.attempts, found.rebooted) == (None, (), False)
