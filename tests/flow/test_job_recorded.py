"""Bare Jobs live as under the real controller: the same status, Pods and events at each act."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flow.job_acts import LIVES, Act, Object, build_pod_status, capture, list_active
from tests.flow.plant import Plant, running_plant
from trainmaster.api.resources import EVENTS, JOBS, PODS
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.controllers.job.reconciler import CONTROLLER
from trainmaster.kit.clock import format_time
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

RECORDED: dict[str, list[Object]] = json.loads(Path(__file__).with_name("job_acts.json").read_text())
DIFFERENT = {
    # Upstream counts a failed Pod of such a Job only once its successor exists; ours when it has failed.
    ("each", 1): "status",
}
"""(life, act): what is not as recorded."""


async def picture(plant: Plant, name: str) -> Object:
    events = [one for one in await plant.list_all(EVENTS) if one["involvedObject"]["kind"] == "Job"]
    said = [(one["type"], one["reason"], one["message"]) for one in events]
    return capture(await plant.client.get(JOBS, name, "default"), await plant.list_all(PODS), said)


async def perform(plant: Plant, name: str, act: Act) -> None:
    if act.patch:
        await plant.client.patch(JOBS, name, PatchType.MERGE, act.patch, "default")
    elif not act.seconds:
        pod = list_active(await plant.list_all(PODS))[act.pod]["metadata"]["name"]
        if act.is_deleted:
            await plant.client.delete(PODS, pod, "default", DeleteOptions())
            return
        patch = {"status": build_pod_status(act, format_time(plant.cluster.clock.now()))}
        await plant.client.patch(PODS, pod, PatchType.MERGE, patch, "default", subresource="status")


async def live(name: str) -> list[Object]:
    body, acts = LIVES[name]
    body = {**body, "metadata": {**body["metadata"], "namespace": "default"}}
    async with running_plant(controllers=(CONTROLLER,), runtimes=False) as plant:
        await plant.apply((JOBS, body))
        await plant.settle()
        pictures = [await picture(plant, name)]
        for act in acts:
            await perform(plant, name, act)
            await plant.cluster.clock.sleep(act.seconds)
            await plant.settle()
            pictures.append(await picture(plant, name))
        return pictures


def test_every_life_was_recorded() -> None:
    assert set(RECORDED) == set(LIVES)


@pytest.mark.parametrize("name", LIVES)
def test_a_life_is_as_recorded(name: str) -> None:
    ours = run_virtual(live(name), limit=86_400)
    assert len(ours) == len(RECORDED[name])
    for number, (mine, theirs) in enumerate(zip(ours, RECORDED[name], strict=True)):
        for part in theirs:
            if DIFFERENT.get((name, number)) == part:
                assert mine[part] != theirs[part], "no longer a difference"
            else:
                assert mine[part] == theirs[part], f"{part} after act {number}"
