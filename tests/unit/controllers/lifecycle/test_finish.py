"""Which runtime decides how long a finished TrainJob is kept."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS
from trainmaster.api.training import snapshots
from trainmaster.client.view import View
from trainmaster.controllers.lifecycle.finish import find_retention_runtime
from trainmaster.jobs.models.trainjobs import TrainJob

pytestmark = pytest.mark.unit

JOB: Object = {
    "metadata": {"name": "train", "namespace": "default", "uid": "job-1"},
    "spec": {"runtimeRef": {"name": "torch"}},
}


class Shelf:
    """A view of two objects."""

    def __init__(self, live: Object | None, text: str | None) -> None:
        self._live = live
        self._text = text

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        if gvr == CLUSTER_TRAINING_RUNTIMES and name == "torch":
            return self._live
        if gvr == CONFIG_MAPS and name == "train-runtime-snapshot" and self._text is not None:
            return {"metadata": {"ownerReferences": [{"uid": "job-1"}]}, "data": {"runtime": self._text}}
        return None


def make_runtime(uid: str, **annotations: str) -> Object:
    metadata = {"name": "torch", "uid": uid, "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": {"replicatedJobs": []}}}}


def take(runtime: Object) -> str:
    return snapshots.take(runtime, "ClusterTrainingRuntime")[1]


def find(live: Object | None, text: str | None) -> Any:
    return find_retention_runtime(cast(View, Shelf(live, text)), TrainJob(JOB))


def test_the_live_runtime_decides_while_it_is_the_one_that_the_job_began_with() -> None:
    edited = make_runtime("9a51de44-ba8d-409c-a6db-1f8b8265e1fc", ttl="1h")
    assert find(edited, take(make_runtime("9a51de44-ba8d-409c-a6db-1f8b8265e1fc"))) is edited
    assert find(edited, None) is edited
    assert find(edited, "]") is edited


def test_the_snapshot_decides_when_the_runtime_is_gone_or_another_of_its_name() -> None:
    text = take(make_runtime("9a51de44-ba8d-409c-a6db-1f8b8265e1fc"))
    for live in (None, make_runtime("a2aa5b61-5e0d-4e5f-9b0c-4d3f33d0c0a4")):
        assert find(live, text)["metadata"]["uid"] == "9a51de44-ba8d-409c-a6db-1f8b8265e1fc"


def test_nothing_is_parsed_to_see_that_the_runtime_is_still_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start asks for all finished jobs, whose texts differ: 18 ms to load the parser, 0.4 ms for each."""
    live = make_runtime("9a51de44-ba8d-409c-a6db-1f8b8265e1fc", used="today")
    text = take(make_runtime("9a51de44-ba8d-409c-a6db-1f8b8265e1fc", used="yesterday", other="a\nuid: x\n"))
    monkeypatch.delattr(snapshots, "read")
    assert find(live, text) is live
