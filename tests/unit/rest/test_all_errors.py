"""Requests that do not fit their schema are repaired for further checks, and stay as they were sent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from trainmaster.rest.all_errors import repair
from trainmaster.rest.models.creating import NewJob
from trainmaster.rest.models.trainjobs import CreateRequest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"config": None},
        {"config": [1]},
        {"config": {"num_nodes": {}, "gpu_per_node": -1, "x": 1}},
        {"user_id": 5, "namespace": None, "framework": [], "training_code": {}, "y": [[]]},
    ],
)
def test_a_request_of_the_guide(sent: Any) -> None:
    before = deepcopy(sent)
    repaired = repair(CreateRequest, sent)
    assert repaired is not None
    assert (repaired.user_id, repaired.config.num_nodes) == ("", 1)
    assert sent == before


@pytest.mark.parametrize(
    "sent",
    [
        {"volumes": [1, None, [], {}, {"claim": 1}, {"claim": "c", "mount_path": "/d", "z": 1}]},
        {"volumes": "all", "env": ["A"], "labels": {"a": None}, "files": {"a": 1}},
        {"command": ["a", None, 3, ["b"]], "packages": [{}], "runtime_kind": "Other"},
        {"packages": ["a"] * 101, "ttl_seconds": 2**40, "suspended": "x"},
    ],
)
def test_a_request_of_v1(sent: Any) -> None:
    before = deepcopy(sent)
    repaired = repair(NewJob, {"name": "kept", **sent})
    assert repaired is not None
    assert repaired.name == "kept"
    assert sent == before
    if isinstance(sent.get("volumes"), list):
        assert [volume.claim for volume in repaired.volumes] == ["", "", "", "", "", "c"]


def test_a_large_request_is_repaired_in_one_pass() -> None:
    """Copying the files for each of them would take minutes."""
    repaired = repair(NewJob, {"files": {str(number): number for number in range(30_000)}, "code": "print(1)"})
    assert repaired is not None
    assert (repaired.files, repaired.code) == ({}, "print(1)")
