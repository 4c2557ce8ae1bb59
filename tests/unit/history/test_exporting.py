"""Submitting a job again from its record, with the runtime that was made for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import already_exists
from trainmaster.api.training import snapshots
from trainmaster.history import exporting
from trainmaster.history.record import JobRecord

pytestmark = pytest.mark.unit


def make_record(kind: str = "TrainingRuntime", **labels: str) -> JobRecord:
    meta = {"name": "copy", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": labels}
    spec: Object = {"template": {"spec": {"replicatedJobs": []}}}
    trainjob = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"runtimeRef": {"kind": kind, "name": "copy"}}}
    document: dict[str, Any] = {"trainjob": trainjob}
    document["runtime"] = snapshots.take({"metadata": meta, "spec": spec}, kind)[1]
    return JobRecord("uid", "ns", "a", "copy", "Complete", "", "", document=document)


def test_a_derived_runtime_comes_back_without_what_the_server_added() -> None:
    runtime = exporting.find_derived(make_record(**{"trainmaster.dev/derived": "true"}))
    assert runtime is not None
    assert runtime["metadata"] == {"name": "copy", "namespace": "ns", "labels": {"trainmaster.dev/derived": "true"}}
    assert runtime["kind"] == "TrainingRuntime"


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(make_record(), id="one that a person made"),
        pytest.param(make_record("ClusterTrainingRuntime"), id="one of the cluster"),
    ],
)
def test_other_runtimes_are_their_owners_business(record: JobRecord) -> None:
    assert exporting.find_derived(record) is None


class Server:
    def __init__(self, *taken: GVR) -> None:
        self.taken = taken
        self.made: list[GVR] = []

    async def create(self, gvr: GVR, obj: Object, namespace: str) -> Object:
        if gvr in self.taken:
            raise already_exists(gvr, obj["metadata"]["name"])
        self.made.append(gvr)
        return obj


@pytest.mark.parametrize(
    ("taken", "want"), [((), [TRAINING_RUNTIMES, TRAIN_JOBS]), ((TRAINING_RUNTIMES,), [TRAIN_JOBS])]
)
def test_the_runtime_is_made_first_unless_it_is_there(taken: tuple[GVR, ...], want: list[GVR]) -> None:
    record, server = make_record(**{"trainmaster.dev/derived": "true"}), Server(*taken)
    manifest = exporting.build_manifest(record, "again")
    asyncio.run(exporting.submit(server, manifest, exporting.find_derived(record)))  # type: ignore[arg-type]
    assert server.made == want
