"""Somebody who may write in one namespace of a cluster, and reaches for the jobs of another through our controllers.

They know the uid of what they are after; names and uids are no secret on a cluster. The controllers run in one process
in virtual time: what they believe is the same on a cluster, where the real JobSet and Job controllers stand between.
"""

from __future__ import annotations

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, NAMESPACES, PODS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.attacks

MINE = "attacker"


def end_last(pod: Object, run: int) -> int:
    """The victim's Pods end well; those of the attacker are never started by the node."""
    return 0 if pod["metadata"]["namespace"] == "default" else -1


async def plant_child(plant: Plant, gvr: GVR, like: Object, name: str, status: Object) -> None:
    """A copy of one of the victim's children in the attacker's namespace, owned by the victim's own object. The
    garbage collector would take it away at once, so it has a finalizer."""
    copy = {key: value for key, value in like.items() if key != "status"}
    kept = {key: like["metadata"].get(key) or {} for key in ("labels", "annotations")}
    copy["metadata"] = {**kept, "name": name, "ownerReferences": like["metadata"]["ownerReferences"]}
    copy["metadata"]["finalizers"] = ["attacker.example/stay"]
    if gvr == JOBS:
        spec = {key: value for key, value in copy["spec"].items() if key != "selector"}
        template = {**spec["template"], "metadata": {}}
        copy["spec"] = {**spec, "template": template}
    await plant.client.create(gvr, copy, MINE)
    await plant.client.patch(gvr, name, PatchType.MERGE, {"status": status}, MINE, subresource="status")


def test_children_that_somebody_claims_in_another_namespace_do_not_decide_about_a_job() -> None:
    async def main() -> None:
        async with running_plant(ScriptedNode(end_last, seconds=60)) as plant:
            await plant.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MINE}})
            await plant.client.create(TRAIN_JOBS, make_trainjob(nodes=1), "default")
            await plant.settle()
            job = (await plant.client.list(JOBS, "default")).items[0]
            pod = (await plant.client.list(PODS, "default")).items[0]
            failed = {"phase": "Failed", "reason": "Planted", "message": "planted"}
            await plant_child(plant, PODS, pod, "planted", failed)
            told = {"status": "True", "reason": "Planted", "message": "planted"}
            ended = [{"type": "FailureTarget", **told}, {"type": "Failed", **told}]
            start = job["status"]["startTime"]
            await plant_child(plant, JOBS, job, "planted", {"conditions": ended, "failed": 1, "startTime": start})
            done = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
            assert is_true(list_conditions(done), "Complete"), done["status"]
            assert "planted" not in str(done["status"])
            assert (await plant.client.get(JOB_SETS, "first", "default")).get("status", {}).get("restarts", 0) == 0

    run_virtual(main())
