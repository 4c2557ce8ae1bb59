"""The subresource scale: reading, replacing, patching and applying the number of workers of a v1 job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.status import Conflict, Invalid, StatusError
from trainmaster.api.tenancy import NAME as QUOTA
from trainmaster.api.v1jobs.frameworks import MPI, PADDLE, PYTORCH, V1Framework
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

SOMEBODY = WriteOptions(field_manager="somebody")
WORKERS = ".spec.pytorchReplicaSpecs.Worker"


def make_job(framework: V1Framework = PYTORCH, **replicas: int | None) -> Object:
    template = {"spec": {"containers": [{"name": framework.container, "image": "train:1"}]}}
    types = {
        name: {"template": template} if count is None else {"replicas": count, "template": template}
        for name, count in replicas.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": {"name": "a"},
        "spec": {framework.replicas_field: types},
    }


def scaled(body: Callable[[Cluster], Awaitable[None]], *jobs: tuple[V1Framework, Object]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            for framework, job in jobs:
                await cluster.client.create(framework.gvr, job, "default")
            await body(cluster)

    run_virtual(main())


async def get_scale(cluster: Cluster, framework: V1Framework = PYTORCH) -> Object:
    return await cluster.client.get(framework.gvr, "a", "default", subresource="scale")


async def patch(cluster: Cluster, body: object, kind: PatchType = PatchType.MERGE, **options: Any) -> Object:
    asked = WriteOptions(field_manager="somebody", **options)
    return await cluster.client.patch(PYTORCH.gvr, "a", kind, body, "default", subresource="scale", options=asked)


async def count_workers(cluster: Cluster) -> int:
    job = await cluster.client.get(PYTORCH.gvr, "a", "default")
    replicas: int = job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    return replicas


def test_a_scale_shows_the_workers_and_their_selector() -> None:
    async def body(cluster: Cluster) -> None:
        active = {"Worker": {"active": 2, "selector": "x=y"}}
        status = {"status": {"replicaStatuses": active, "conditions": []}}
        await cluster.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, status, "default", subresource="status")
        job = await cluster.client.get(PYTORCH.gvr, "a", "default")
        scale = await get_scale(cluster)
        names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        assert scale == {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {name: job["metadata"][name] for name in names},
            "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "x=y"},
        }

    scaled(body, (PYTORCH, make_job(Master=1, Worker=3)))


def test_the_default_is_shown_where_the_number_is_not_set() -> None:
    async def body(cluster: Cluster) -> None:
        scale = await get_scale(cluster, PADDLE)
        assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 0})

    scaled(body, (PADDLE, make_job(PADDLE, Worker=None)))


def test_a_replacement_changes_the_workers_and_nothing_else() -> None:
    async def body(cluster: Cluster) -> None:
        before = await cluster.client.get(PYTORCH.gvr, "a", "default")
        scale = await get_scale(cluster)
        scale["spec"]["replicas"] = 5
        scale["metadata"]["labels"] = {"ignored": "yes"}
        answer = await cluster.client.update(PYTORCH.gvr, scale, "default", subresource="scale", options=SOMEBODY)
        after = await cluster.client.get(PYTORCH.gvr, "a", "default")
        assert (answer["kind"], answer["spec"]) == ("Scale", {"replicas": 5})
        assert answer["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
        assert "labels" not in after["metadata"]
        [entry] = [entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "somebody"]
        assert (entry["subresource"], entry["operation"]) == ("scale", "Update")
        assert entry["fieldsV1"] == {"f:spec": {"f:pytorchReplicaSpecs": {"f:Worker": {"f:replicas": {}}}}}
        before["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 5
        assert after["spec"] == before["spec"]

    scaled(body, (PYTORCH, make_job(Master=1, Worker=3)))


def test_a_replacement_needs_the_current_version_only_if_it_names_one() -> None:
    async def body(cluster: Cluster) -> None:
        stale = await get_scale(cluster)
        await patch(cluster, {"spec": {"replicas": 4}})
        with pytest.raises(Conflict, match=r'on pytorchjobs.kubeflow.org "a": the object has been modified'):
            await cluster.client.update(PYTORCH.gvr, stale, "default", subresource="scale")
        other = {**stale, "metadata": {"name": "a", "uid": "another"}}
        with pytest.raises(Conflict, match="UID in precondition: another"):
            await cluster.client.update(PYTORCH.gvr, other, "default", subresource="scale")
        assert await count_workers(cluster) == 4
        free = {**stale, "metadata": {"name": "a"}}
        await cluster.client.update(PYTORCH.gvr, free, "default", subresource="scale")
        assert await count_workers(cluster) == 3

    scaled(body, (PYTORCH, make_job(Worker=3)))


def test_patches_of_a_scale() -> None:
    async def body(cluster: Cluster) -> None:
        assert (await patch(cluster, {"spec": {"replicas": 4}}))["spec"] == {"replicas": 4}
        steps = [
            {"op": "test", "path": "/spec/replicas", "value": 4},
            {"op": "replace", "path": "/spec/replicas", "value": 2},
        ]
        assert (await patch(cluster, steps, PatchType.JSON))["spec"] == {"replicas": 2}
        assert (await patch(cluster, {"spec": {"replicas": 7}}, dry_run=True))["spec"] == {"replicas": 7}
        assert await count_workers(cluster) == 2
        with pytest.raises(Conflict):
            await patch(cluster, {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 9}})
        with pytest.raises(StatusError) as refused:
            await patch(cluster, {"spec": {"replicas": 9}}, PatchType.STRATEGIC)
        assert refused.value.code == 415
        with pytest.raises(Invalid, match=r"patch: Invalid value: .*: json: cannot unmarshal string"):
            await patch(cluster, {"spec": {"replicas": "many"}})
        assert await count_workers(cluster) == 2

    scaled(body, (PYTORCH, make_job(Worker=3)))


def test_an_applied_scale_owns_the_number() -> None:
    async def body(cluster: Cluster) -> None:
        applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 6}}
        with pytest.raises(Conflict, match=r"\.spec\.pytorchReplicaSpecs\.Worker\.replicas"):
            await patch(cluster, applied, PatchType.APPLY)
        await patch(cluster, applied, PatchType.APPLY, force=True)
        assert await count_workers(cluster) == 6
        with pytest.raises(StatusError, match=r"an applied Scale must set spec\.replicas"):
            await patch(cluster, {**applied, "spec": {}}, PatchType.APPLY)
        with pytest.raises(StatusError, match=r"invalid object type: kubeflow.org/v1, Kind=PyTorchJob"):
            await patch(cluster, make_job(Worker=1), PatchType.APPLY)

    scaled(body, (PYTORCH, make_job(Worker=3)))


def test_negative_numbers_are_refused_wherever_they_are_written() -> None:
    text = rf"{WORKERS}\.replicas: Invalid value: -1: should be a non-negative integer"

    async def body(cluster: Cluster) -> None:
        with pytest.raises(Invalid, match=text):
            await patch(cluster, {"spec": {"replicas": -1}})
        with pytest.raises(Invalid, match=text):
            await cluster.client.create(PYTORCH.gvr, make_job(Master=1, Worker=-1), "default")

    scaled(body, (PYTORCH, make_job(Worker=3)))


def test_a_pytorch_job_keeps_a_worker_but_a_paddle_job_may_have_none() -> None:
    """Without any Worker a PyTorchJob that has no Master would count as succeeded."""

    async def body(cluster: Cluster) -> None:
        with pytest.raises(StatusError, match="must be at least 1"):
            await patch(cluster, {"spec": {"replicas": 0}})
        # Go clients leave out a zero.
        none = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {}}
        answer = await cluster.client.update(PADDLE.gvr, none, "default", subresource="scale")
        assert answer["spec"] == {"replicas": 0}

    scaled(body, (PYTORCH, make_job(Worker=3)), (PADDLE, make_job(PADDLE, Master=1, Worker=2)))


def test_what_has_no_workers_or_no_scale_is_not_scaled() -> None:
    async def body(cluster: Cluster) -> None:
        text = f'pytorchjobs.kubeflow.org "a" cannot be scaled, because it has no {WORKERS}'
        for attempt in (get_scale(cluster), patch(cluster, {"spec": {"replicas": 2}})):
            with pytest.raises(StatusError, match=text) as refused:
                await attempt
            assert refused.value.code == 404
        with pytest.raises(StatusError, match="could not find the requested resource"):
            await get_scale(cluster, MPI)
        with pytest.raises(StatusError, match=r'paddlejobs.kubeflow.org "a" not found'):
            await get_scale(cluster, PADDLE)

    scaled(body, (PYTORCH, make_job(Master=1)), (MPI, make_job(MPI, Launcher=1, Worker=2)))


def test_the_rules_about_objects_also_apply_to_their_scale() -> None:
    """Tenants are limited by the size of a gang; a Scale does not get around it."""

    async def body(cluster: Cluster) -> None:
        quota = {"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": "4"}}}
        await cluster.client.create(RESOURCE_QUOTAS, {**quota, "apiVersion": "v1", "kind": "ResourceQuota"}, "default")
        with pytest.raises(StatusError, match="50 Pods"):
            await patch(cluster, {"spec": {"replicas": 50}})

    scaled(body, (PYTORCH, make_job(Worker=3)))
