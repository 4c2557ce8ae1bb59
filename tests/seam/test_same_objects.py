"""The same TrainJobs lead to the same objects, conditions, messages and events on both servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.plant import Script, succeed
from tests.flow.stage import Stage, embedded_stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.sameness import describe_all, describe_events, list_differences, take_last_words
from tests.seam.stage import kube_stage
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.controllers.last_words import POLICY
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.kube


def hang(pod: Object, run: int) -> int:
    return -1


def fail(pod: Object, run: int) -> int:
    return 1


SHM: Object = {
    "targetJobs": [{"name": "node"}],
    "spec": {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
    },
}
TRAINER: Object = {"image": "train:1", "command": ["python", "train.py"], "numNodes": 2}
GPUS: Object = {"limits": {"nvidia.com/gpu": 8, "memory": "100Gi"}, "requests": {"cpu": "500m", "memory": "100Gi"}}

CASES: dict[str, tuple[Object, Script | None]] = {
    # TrainJob and script. Without a script the Pods need what one of the servers has not (devices, storage): then
    # the objects are compared, and not what became of them.
    "it completes": (make_trainjob(), succeed),
    "it fails": (make_trainjob(runtime="plain", nodes=1), fail),
    "t5-large": (
        make_trainjob(podTemplateOverrides=[SHM], trainer={**TRAINER, "resourcesPerNode": GPUS, "numProcPerNode": 8}),
        None,
    ),
    "labels, annotations and env": (
        make_trainjob(
            labels={"team": "a"},
            annotations={"note": "b"},
            trainer={**TRAINER, "env": [{"name": "LR", "value": "0.1"}], "args": ["--epochs", "3"]},
        ),
        succeed,
    ),
    "suspended": (make_trainjob(suspend=True), succeed),
    "deepspeed": (make_trainjob(runtime="deepspeed-distributed"), hang),
    "jax": (make_trainjob(runtime="jax-distributed"), succeed),
    "xgboost": (make_trainjob(runtime="xgboost-distributed"), succeed),
    "an initializer": (
        make_trainjob(initializer={"dataset": {"storageUri": "hf://a/b"}}, runtime="torchtune-llama3.2-1b"),
        None,
    ),
}


def is_up(trainjob: Object) -> bool:
    """Everything that was started is ready."""
    counts = trainjob.get("status", {}).get("jobsStatus") or []
    return any(entry["ready"] for entry in counts) and all(entry["ready"] == entry["active"] for entry in counts)


async def play(stage: Stage, trainjob: Object, script: Script | None) -> tuple[Any, Any]:
    await stage.submit(trainjob)
    if trainjob["spec"].get("suspend"):
        await stage.wait_for(JOB_SETS, "first", lambda jobset: is_true(list_conditions(jobset), "Suspended"))
    elif script is None:
        await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
    else:
        await stage.wait_for(TRAIN_JOBS, "first", is_up if script is hang else is_finished)
    await stage.come_to_rest()
    objects, events = await describe_all(stage), await describe_events(stage)
    if script is None:
        del objects["trainjobs/first"]["status"]
        return objects, None
    # Our own JobSet controller pauses between restarts and says so; upstream's restarts at once.
    return objects, {event for event in events if event[1] != "RestartBackOff"}


@pytest.mark.parametrize("name", CASES)
def test_both_servers_end_with_the_same_objects(name: str, seam_cluster: KubeCluster) -> None:
    trainjob, script = CASES[name]

    async def embedded() -> tuple[Any, Any]:
        async with embedded_stage(script or hang) as stage:
            return await play(stage, trainjob, script)

    async def kube() -> tuple[Any, Any]:
        async with kube_stage(seam_cluster, script or hang) as stage:
            return await play(stage, trainjob, script)

    ours, our_events = run_virtual(embedded(), limit=86_400)
    theirs, their_events = asyncio.run(kube())
    # Every container on a cluster is asked to keep its last words, and none on one machine.
    assert (take_last_words(ours), take_last_words(theirs)) == ({""}, {POLICY})
    assert list_differences(ours, theirs) == []
    if our_events is None:
        assert their_events is None
        return
    # Upstream's JobSet restarts at once, so the Pods of an attempt may be gone before anybody looked at them.
    unseen = {event for event in our_events - their_events if event[1] == "RankFailed"}
    assert their_events == our_events - unseen
