"""Settings, the doctor's findings and runtimes through REST: what they say, and to whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flow.plant import ScriptedNode
from tests.flow.test_rest_jobs import create, read, wait_for
from tests.support.rest_plant import RestPlant, running_rest_plant
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def play(tmp_path: Path, scene: Callable[[RestPlant, str, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path, ScriptedNode()) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob"))

    run_virtual(main(), limit=86_400)


def test_administrators_read_settings_and_findings_and_nobody_else(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, _: str) -> None:
        settings = await read(plant, plant.rest.owner, "settings")
        found = {one["key"]: one for one in settings["items"]}
        assert (found["rest.enabled"]["value"], found["rest.enabled"]["source"]) == (True, "default")
        doctor = await read(plant, plant.rest.owner, "doctor")
        checks = {one["check"]: one["state"] for one in doctor["checks"]}
        assert {"system", "home", "isolation", "disk"} <= set(checks)
        assert doctor["healthy"] == ("problem" not in checks.values())
        for path in ("settings", "doctor"):
            refused = await read(plant, ann, path, 403)
            assert "administrators" in refused["detail"]

    play(tmp_path, scene)


def test_the_doctor_says_what_is_wrong_with_a_job_to_whoever_may_read_it(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        job = await create(plant, ann)
        await wait_for(plant, ann, job, "Complete")
        found = await read(plant, ann, f"jobs/{job}/doctor")
        assert (found["name"], found["namespace"], found["kind"]) == (job, "ann", "TrainJob")
        assert ("ttl", "note") in [(one["check"], one["state"]) for one in found["findings"]]
        assert all(one["seen"] for one in found["findings"])
        await read(plant, bob, f"jobs/{job}/doctor?namespace=ann", 403)
        await read(plant, ann, "jobs/nothing/doctor", 404)

    play(tmp_path, scene)


def test_a_runtime_shows_its_yaml_and_the_jobs_that_the_caller_may_read(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        own, secret = await create(plant, ann), await create(plant, bob, "bob")
        await plant.rest.clock.sleep(1)
        found = await read(plant, ann, "runtimes/pytorch-simple")
        assert (found["kind"], found["policy"]) == ("ClusterTrainingRuntime", "torch")
        assert [one["name"] for one in found["users"]] == [own] and secret not in str(found)
        assert found["steps"][0]["step"] == "trainer"
        manifest = yaml.safe_load(found["yaml"])
        assert manifest["metadata"]["name"] == "pytorch-simple" and "managedFields" not in manifest["metadata"]
        everybody = await read(plant, plant.rest.owner, "runtimes/pytorch-simple")
        assert {one["name"] for one in everybody["users"]} == {own, secret}
        assert (everybody["active"] + everybody["ended"], found["active"] + found["ended"]) == (2, 1)
        await wait_for(plant, ann, own, "Complete")
        ended = await read(plant, ann, "runtimes/pytorch-simple")
        assert (ended["active"], ended["ended"], ended["users"][0]["state"]) == (0, 1, "Complete")

    play(tmp_path, scene)


def test_a_runtime_of_a_namespace_is_another_than_that_of_the_cluster(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        client = plant.rest.client
        shared: dict[str, Any] = await client.get(CLUSTER_TRAINING_RUNTIMES, "pytorch-simple")
        narrow = {"apiVersion": shared["apiVersion"], "kind": "TrainingRuntime", "spec": shared["spec"]}
        for name in ("pytorch-simple", "ours"):
            await client.create(TRAINING_RUNTIMES, {**narrow, "metadata": {"name": name}}, "ann")
        assert (await read(plant, ann, "runtimes/ours"))["namespace"] == "ann"
        assert (await read(plant, ann, "runtimes/pytorch-simple"))["namespace"] is None
        chosen = await read(plant, ann, "runtimes/pytorch-simple?kind=TrainingRuntime")
        assert (chosen["namespace"], chosen["users"]) == ("ann", [])
        await read(plant, bob, "runtimes/ours", 404)
        await read(plant, bob, "runtimes/ours?namespace=ann", 403)
        missing = await read(plant, ann, "runtimes/nothing", 404)
        assert "GET /api/v1/runtimes" in missing["hint"]
        for query in ("kind=Nothing", "namespace=..%2Fbob", "namespace="):
            assert (await read(plant, ann, f"runtimes/ours?{query}", 422))["errors"]
        needed = await read(plant, plant.rest.owner, "runtimes/ours?kind=TrainingRuntime", 422)
        assert needed["errors"][0]["parameter"] == "namespace"

    play(tmp_path, scene)
