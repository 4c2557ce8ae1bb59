"""Bare JobSets live as under the real manager: the same Jobs, Services, claims, status and events at each act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.jobset_acts import LIVES, Act, Object, build_pod_status, capture, compact
from tests.flow.plant import Plant, running_plant
from trainmaster.api.resources import EVENTS, JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES
from trainmaster.client.contract import ListOptions, PatchType
from trainmaster.controllers.job.reconciler import CONTROLLER as JOB
from trainmaster.controllers.jobset.reconciler import CONTROLLER as JOBSET
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.kit.clock import format_time
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

RECORDED: dict[str, list[Object]] = json.loads(Path(__file__).with_name("jobset_acts.json").read_text())
ADDED = {
    # There is one node; upstream spreads Jobs over nodes by a webhook for Pods.
    "topology": "ExclusivePlacementApproximated",
}
"""Events that only we send."""


async def list_labelled(plant: Plant, gvr: Any, selector: str) -> list[Object]:
    return (await plant.client.list(gvr, "default", ListOptions(label_selector=selector))).items


async def picture(plant: Plant, name: str) -> Object:
    jobset = await plant.client.get(JOB_SETS, name, "default")
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    services = [
        one for one in await plant.list_all(SERVICES) if ObjectModel(one).is_owned_by(jobset["metadata"]["uid"])
    ]
    events = [one for one in await plant.list_all(EVENTS) if one["involvedObject"]["kind"] == "JobSet"]
    said = sorted({(one["type"], one["reason"], one["message"]) for one in events})
    jobs = await list_labelled(plant, JOBS, selector)
    claims = await list_labelled(plant, PERSISTENT_VOLUME_CLAIMS, selector)
    return capture(jobset, jobs, services, claims, said)


async def perform(plant: Plant, name: str, act: Act) -> None:
    if act.patch:
        await plant.client.patch(JOB_SETS, name, PatchType.MERGE, act.patch, "default")
        return
    status = build_pod_status(act.verb, format_time(plant.cluster.clock.now()))
    for pod in await list_labelled(plant, PODS, f"job-name={act.job}"):
        patch = {"status": status}
        await plant.client.patch(PODS, pod["metadata"]["name"], PatchType.MERGE, patch, "default", subresource="status")


async def live(name: str) -> list[Object]:
    body, acts = LIVES[name]
    async with running_plant(controllers=(JOBSET, JOB), runtimes=False) as plant:
        await plant.apply((JOB_SETS, body))
        await plant.cluster.clock.sleep(120)
        pictures = [await picture(plant, name)]
        for act in acts:
            await perform(plant, name, act)
            await plant.cluster.clock.sleep(120)
            pictures.append(await picture(plant, name))
        return compact(pictures)


@pytest.mark.parametrize("name", LIVES)
def test_a_life_is_as_recorded(name: str) -> None:
    ours = run_virtual(live(name), limit=86_400)
    assert len(ours) == len(RECORDED[name])
    if name in ADDED:
        kept = [event for event in ours[0]["events"] if event[1] != ADDED[name]]
        assert kept != ours[0]["events"], "no longer a difference"
        ours[0]["events"] = kept
    for number, (mine, theirs) in enumerate(zip(ours, RECORDED[name], strict=True)):
        for part in theirs:
            assert mine[part] == theirs[part], f"{part} after act {number}"
