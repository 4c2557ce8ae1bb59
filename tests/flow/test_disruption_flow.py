"""A disrupted gang (after a reboot, or an eviction) restarts without using up a restart."""

from __future__ import annotations

import pytest

from tests.flow.plant import ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.client.contract import Client, PatchType
from trainmaster.kit.clock import Clock, format_time
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

DISRUPTIONS = 8
"""More than the six restarts that the shipped runtimes allow."""


class UnsteadyMachine(ScriptedNode):
    """Reports its Pods as disrupted, as the node does after a reboot, until it has done so often enough."""

    async def end(self, client: Client, clock: Clock, pod: Object, run: int, moment: str) -> None:
        if run >= DISRUPTIONS:
            await super().end(client, clock, pod, run, moment)
            return
        await clock.sleep(self.seconds)
        meta = pod["metadata"]
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        condition |= {"message": "the machine was restarted", "lastTransitionTime": format_time(clock.now())}
        body = {"status": {"phase": "Failed", "conditions": [condition]}}
        await client.patch(PODS, meta["name"], PatchType.MERGE, body, meta["namespace"], subresource="status")


def test_disruptions_do_not_use_up_the_restarts_of_a_shipped_runtime() -> None:
    async def main() -> None:
        async with running_plant(UnsteadyMachine()) as plant:
            await plant.apply((TRAIN_JOBS, make_trainjob()))
            trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
            assert trainjob["status"]["conditions"][0]["type"] == "Complete"
            (jobset,) = await plant.list_all(JOB_SETS)
            assert jobset["status"]["restarts"] == DISRUPTIONS
            assert not jobset["status"].get("restartsCountTowardsMax")

    run_virtual(main(), limit=86_400)
