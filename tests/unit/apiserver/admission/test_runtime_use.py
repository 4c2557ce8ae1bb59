"""A runtime that TrainJobs refer to is kept, and the refusal says by whom and what to do."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trainmaster.api.labels import ALLOW_DELETE_IN_USE, DERIVED
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, NAMESPACES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import StatusError
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

KINDS = {TRAINING_RUNTIMES: "TrainingRuntime", CLUSTER_TRAINING_RUNTIMES: "ClusterTrainingRuntime"}


def make_runtime(gvr: GVR, name: str = "r", namespace: str = "default", **meta: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    where = {"namespace": namespace} if gvr == TRAINING_RUNTIMES else {}
    labels = {"trainer.kubeflow.org/framework": "plain", **meta.pop("labels", {})}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": KINDS[gvr],
        "metadata": {"name": name, **where, "labels": labels, **meta},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def make_trainjob(gvr: GVR, name: str = "a", runtime: str = "r", namespace: str = "default") -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": {"name": runtime, "kind": KINDS[gvr]}},
    }


async def add(cluster: Cluster, *objects: tuple[GVR, Object]) -> None:
    for gvr, obj in objects:
        await cluster.client.create(gvr, obj, obj["metadata"].get("namespace", ""))


async def add_namespace(cluster: Cluster, name: str) -> None:
    await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def delete(cluster: Cluster, gvr: GVR, **options: Any) -> str:
    """The refusal's message; "" when there is none."""
    try:
        namespace = "default" if gvr == TRAINING_RUNTIMES else ""
        await cluster.client.delete(gvr, "r", namespace, DeleteOptions(**options))
    except StatusError as error:
        assert (error.code, error.reason) == (403, "Forbidden")
        return error.message
    return ""


def run(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(cluster)

    run_virtual(main())


def test_the_refusal_names_the_jobs_and_the_annotation_that_overrides() -> None:
    async def test(cluster: Cluster) -> None:
        await add(cluster, (CLUSTER_TRAINING_RUNTIMES, make_runtime(CLUSTER_TRAINING_RUNTIMES)))
        await add(cluster, (TRAIN_JOBS, make_trainjob(CLUSTER_TRAINING_RUNTIMES)))
        assert await delete(cluster, CLUSTER_TRAINING_RUNTIMES) == (
            'clustertrainingruntimes.trainer.kubeflow.org "r" is forbidden: in use by TrainJob default/a. '
            "Delete it first, or allow it with: "
            f"kubectl annotate clustertrainingruntime r {ALLOW_DELETE_IN_USE}=true"
        )
        await add(cluster, *((TRAIN_JOBS, make_trainjob(CLUSTER_TRAINING_RUNTIMES, name)) for name in "bcde"))
        said = await delete(cluster, CLUSTER_TRAINING_RUNTIMES)
        assert "TrainJobs default/a, default/b, default/c and others" in said

    run(test)


@pytest.mark.parametrize("gvr", KINDS, ids=KINDS.values())
def test_it_can_be_deleted_when_the_last_job_is_gone(gvr: GVR) -> None:
    async def test(cluster: Cluster) -> None:
        await add(cluster, (gvr, make_runtime(gvr)), (TRAIN_JOBS, make_trainjob(gvr)))
        assert "default/a" in await delete(cluster, gvr)
        assert "default/a" in await delete(cluster, gvr, dry_run=True)
        await cluster.client.delete(TRAIN_JOBS, "a", "default")
        assert await delete(cluster, gvr) == ""

    run(test)


def test_jobs_of_other_runtimes_of_the_same_name_do_not_count() -> None:
    async def test(cluster: Cluster) -> None:
        await add_namespace(cluster, "other")
        await add(
            cluster,
            (CLUSTER_TRAINING_RUNTIMES, make_runtime(CLUSTER_TRAINING_RUNTIMES)),
            (TRAINING_RUNTIMES, make_runtime(TRAINING_RUNTIMES)),
            (TRAINING_RUNTIMES, make_runtime(TRAINING_RUNTIMES, namespace="other")),
            (TRAIN_JOBS, make_trainjob(TRAINING_RUNTIMES, namespace="other")),
        )
        assert await delete(cluster, CLUSTER_TRAINING_RUNTIMES) == ""
        assert await delete(cluster, TRAINING_RUNTIMES) == ""

    run(test)


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"annotations": {ALLOW_DELETE_IN_USE: "true"}}, id="with the annotation"),
        pytest.param({"labels": {DERIVED: "true"}}, id="derived"),
    ],
)
def test_what_is_exempt_goes_at_once(meta: dict[str, Any]) -> None:
    async def test(cluster: Cluster) -> None:
        await add(
            cluster,
            (TRAINING_RUNTIMES, make_runtime(TRAINING_RUNTIMES, **meta)),
            (TRAIN_JOBS, make_trainjob(TRAINING_RUNTIMES)),
        )
        assert await delete(cluster, TRAINING_RUNTIMES) == ""

    run(test)


def test_an_annotation_of_another_value_does_not_override() -> None:
    async def test(cluster: Cluster) -> None:
        runtime = make_runtime(TRAINING_RUNTIMES, annotations={ALLOW_DELETE_IN_USE: "no"})
        await add(cluster, (TRAINING_RUNTIMES, runtime), (TRAIN_JOBS, make_trainjob(TRAINING_RUNTIMES)))
        assert "-n default" in await delete(cluster, TRAINING_RUNTIMES)
        allow = {"metadata": {"annotations": {ALLOW_DELETE_IN_USE: "true"}}}
        await cluster.client.patch(TRAINING_RUNTIMES, "r", PatchType.MERGE, allow, "default")
        assert await delete(cluster, TRAINING_RUNTIMES) == ""

    run(test)


def test_a_namespace_that_is_deleted_takes_its_runtimes_along() -> None:
    async def test(cluster: Cluster) -> None:
        await add_namespace(cluster, "team")
        held = make_trainjob(TRAINING_RUNTIMES, namespace="team")
        held["metadata"]["finalizers"] = ["a.example/b"]
        await add(
            cluster,
            (TRAINING_RUNTIMES, make_runtime(TRAINING_RUNTIMES, namespace="team")),
            (TRAIN_JOBS, held),
        )
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.settle()
        assert (await cluster.client.list(TRAINING_RUNTIMES, "team")).items == []

    run(test)
