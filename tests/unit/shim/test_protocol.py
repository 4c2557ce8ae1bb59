"""The specs survive the way through a file, also one that a newer version has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainmaster.shim.protocol import (
    TMPFS,
    ContainerSpec,
    Exited,
    Mount,
    ResourceLimits,
    SandboxSpec,
    decode,
    encode,
    write_whole,
)

pytestmark = pytest.mark.unit

SANDBOX = SandboxSpec("u", "p", "n", "h", hosts=(("10.0.0.1", "h.s", "h"),), limits=ResourceLimits(memory=5))
CONTAINER = ContainerSpec(
    "c", 2, ("true",), {"A": "b"}, "/", mounts=(Mount("/x", "/y"), Mount("/dev/shm", kind=TMPFS, size=9)), groups=(7,)
)


def test_specs_come_back_as_they_were() -> None:
    assert decode(SandboxSpec, encode(SANDBOX)) == SANDBOX
    assert decode(ContainerSpec, encode(CONTAINER)) == CONTAINER
    assert decode(Exited, encode(Exited(137, 1.5, 9, oom_killed=True))) == Exited(137, 1.5, 9, oom_killed=True)


def test_a_field_of_a_newer_version_is_dropped_and_a_missing_one_has_its_default() -> None:
    raw = json.loads(encode(CONTAINER))
    raw["from_the_future"] = 1
    del raw["log_keep"]
    assert decode(ContainerSpec, json.dumps(raw).encode()) == CONTAINER


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_whole(str(path), b"one")
    write_whole(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
