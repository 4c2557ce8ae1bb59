"""Refused create requests: all invalid fields are named at once; so are jobs that could never fit the quota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest_plant import RestPlant, running_rest_plant
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

GUIDE = {"user_id": "ann", "namespace": "ann", "framework": "pytorch", "training_code": "print(1)\n"}
V1 = {"framework": "pytorch", "code": "print(1)\n"}


def play(tmp_path: Path, scene: Callable[[RestPlant, str], Awaitable[None]], **limits: Any) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            await scene(plant, await plant.rest.add_tenant("ann", allowance=limits))

    run_virtual(main(), limit=86_400)


@pytest.mark.parametrize(("path", "body"), [("/api/trainjob/create", GUIDE), ("/api/v1/jobs", V1)], ids=["guide", "v1"])
def test_a_job_that_could_never_fit_the_quota(tmp_path: Path, path: str, body: Any) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        config = {"num_nodes": 3, "cpu_per_node": "1", "memory_per_node": "1Gi"}
        answer = await plant.call("POST", path, ann, {**body, "config": config})
        problem = answer.json()
        assert (answer.status, problem["type"]) == (422, "urn:trainmaster:problem:exceeds-quota")
        assert "it needs 3 CPUs, and the tenant may have 2 CPUs at a time, so it could never start" in problem["detail"]
        assert problem["hint"] == "ask for fewer nodes or for less of each, or ask an administrator for more"
        assert [error["pointer"] for error in problem["errors"]] == ["/config"]
        assert (await plant.rest.client.list(TRAIN_JOBS, "ann")).items == []
        scripts = [item["metadata"]["name"] for item in (await plant.rest.client.list(CONFIG_MAPS, "ann")).items]
        assert not [name for name in scripts if name.endswith("-script") and "-job-" in name]
        config["num_nodes"] = 2
        for _ in range(2):
            # The second has to wait for the first.
            answer = await plant.call("POST", path, ann, {**body, "config": config})
            assert answer.status in (200, 201), answer.body

    play(tmp_path, scene, cpu="2", memory="4Gi")


def test_too_many_nodes_for_the_quota(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/v1/jobs", ann, {**V1, "config": {"num_nodes": 6}})
        problem = answer.json()
        assert (answer.status, problem["type"]) == (422, "urn:trainmaster:problem:exceeds-quota")
        assert [error["pointer"] for error in problem["errors"]] == ["/config/num_nodes"]

    play(tmp_path, scene, pods=5)
