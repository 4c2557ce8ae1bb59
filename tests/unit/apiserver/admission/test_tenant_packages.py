"""In a tenant's namespace nothing is stored that would make the server install code of the tenant's making."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trainmaster.api import tenancy
from trainmaster.api.labels import PACKAGES
from trainmaster.api.meta import GVR
from trainmaster.api.resources import JOB_SETS, JOBS, NAMESPACES, PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import Invalid
from trainmaster.apiserver.admission.tenant_packages import list_problems
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

BAD = "tqdm, /data/project\nthing @ file:///data/x"
NOTES = {"annotations": {PACKAGES: BAD}}
CONTAINER = {"name": "node", "image": "python", "command": ["true"]}
TEMPLATE = {"metadata": NOTES, "spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
JOB = {"template": TEMPLATE}
REPLICATED = [{"name": "node", "template": {"spec": JOB}}]
REFERENCE = {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
PLACE = f"metadata.annotations[{PACKAGES}]"


def build(gvr: GVR, kind: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"apiVersion": gvr.api_version, "kind": kind, "metadata": {"name": "p", **meta}, "spec": spec}


OBJECTS = [
    (PODS, build(PODS, "Pod", {"containers": [CONTAINER]}, **NOTES), PLACE),
    (JOBS, build(JOBS, "Job", JOB), f"spec.template.{PLACE}"),
    (
        JOB_SETS,
        build(JOB_SETS, "JobSet", {"replicatedJobs": REPLICATED}),
        f"spec.replicatedJobs[0].template.spec.template.{PLACE}",
    ),
    (
        TRAINING_RUNTIMES,
        build(TRAINING_RUNTIMES, "TrainingRuntime", {"template": {"spec": {"replicatedJobs": REPLICATED}}}),
        f"spec.template.spec.replicatedJobs[0].template.spec.template.{PLACE}",
    ),
    (
        TRAIN_JOBS,
        build(
            TRAIN_JOBS,
            "TrainJob",
            {
                "runtimeRef": REFERENCE,
                "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "metadata": NOTES}],
            },
        ),
        f"spec.podTemplateOverrides[0].{PLACE}",
    ),
    (
        TRAIN_JOBS,
        build(
            TRAIN_JOBS,
            "TrainJob",
            {
                "runtimeRef": REFERENCE,
                "runtimePatches": [
                    {
                        "manager": "a.b/c",
                        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": REPLICATED}}},
                    }
                ],
            },
        ),
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template." + PLACE,
    ),
]


@pytest.mark.parametrize(("gvr", "obj", "field"), OBJECTS)
def test_paths_and_urls_are_refused_wherever_they_stand(gvr: GVR, obj: dict[str, Any], field: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", 611_007))
            await cluster.settle()
            with pytest.raises(Invalid) as refused:
                await cluster.client.create(gvr, copy.deepcopy(obj), "ann")
            ours = [cause for cause in refused.value.causes if cause["field"] == field]
            assert ["/data/project" in cause["message"] for cause in ours] == [True, False], refused.value.causes
            assert "is a URL" in ours[1]["message"]

    run_virtual(main())


def test_a_namespace_without_a_unix_user_is_a_tenants_too() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", None))
            await cluster.settle()
            with pytest.raises(Invalid):
                await cluster.client.create(PODS, copy.deepcopy(OBJECTS[0][1]), "ann")

    run_virtual(main())


def test_the_owner_keeps_paths_and_tenants_keep_names() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", 611_007))
            await cluster.settle()
            await cluster.client.create(PODS, copy.deepcopy(OBJECTS[0][1]), "default")
            good = copy.deepcopy(OBJECTS[0][1])
            good["metadata"]["annotations"] = {PACKAGES: "tqdm>=4, <5\ntorch[a,b]==2.*"}
            await cluster.client.create(PODS, good, "ann")

    run_virtual(main())


def test_what_was_stored_before_can_still_be_changed_but_not_made_worse() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, {"metadata": {"name": "ann"}})
            await cluster.settle()
            old = await cluster.client.create(TRAINING_RUNTIMES, copy.deepcopy(OBJECTS[3][1]), "ann")
            space = await cluster.client.get(NAMESPACES, "ann")
            space["metadata"]["labels"] = {**space["metadata"].get("labels", {}), tenancy.TENANT: "ann"}
            await cluster.client.update(NAMESPACES, space)
            old["metadata"]["labels"] = {"mine": "yes"}
            new = await cluster.client.update(TRAINING_RUNTIMES, old, "ann")
            job = new["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
            job["template"]["metadata"]["annotations"][PACKAGES] += "\n./another"
            with pytest.raises(Invalid, match="another"):
                await cluster.client.update(TRAINING_RUNTIMES, new, "ann")

    run_virtual(main())


def test_deep_objects_are_walked_without_recursion() -> None:
    deep: dict[str, Any] = {"metadata": NOTES}
    for _ in range(50_000):
        deep = {"x": [deep]}
    assert len(list_problems({"kind": "TrainJob", "spec": deep})) == 2
