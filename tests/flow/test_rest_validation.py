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
        assert problem["hint"].startswith("ask for fewer nodes, or for less of each")
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


def list_places(problem: Any) -> list[str]:
    """Where the errors are, without those that stand twice."""
    places = [error.get("pointer") or error.get("parameter") or "" for error in problem["errors"]]
    assert len(set(places)) == len(places), places
    return sorted(places)


ALL_WRONG_GUIDE = {
    "user_id": "Ann Smith",
    "namespace": 7,
    "framework": "fortran",
    "training_code": "import torch as",
    "colour": "red",
    "config": {"num_nodes": "many", "gpu_per_node": 5000, "cpu_per_node": "lots", "memory_per_node": True, "disk": 1},
}
ALL_WRONG_V1 = {
    "name": "Not A Name",
    "namespace": "No",
    "framework": "fortran",
    "code": "import torch as",
    "packages": ["numpy", 5, "--index-url=x"],
    "env": {"GOOD": "1", "BAD NAME": "1", "NUMBER": 3},
    "volumes": [{"mount_path": "relative"}, {"claim": "Data", "mount_path": "/data"}, "no volume"],
    "labels": {"kubernetes.io/a": "b"},
    "config": {"num_nodes": 0, "cpu_per_node": "lots"},
    "ttl_seconds": -1,
    "suspended": "perhaps",
    "colour": "red",
}


def test_the_guides_request_names_schema_framework_and_values_at_once(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/trainjob/create", ann, ALL_WRONG_GUIDE)
        assert answer.status == 422
        assert list_places(answer.json()) == [
            "/colour",
            "/config/cpu_per_node",
            "/config/disk",
            "/config/gpu_per_node",
            "/config/memory_per_node",
            "/config/num_nodes",
            "/framework",
            "/namespace",
            "/training_code",
            "/user_id",
        ]

    play(tmp_path, scene)


def test_a_request_of_v1_names_schema_framework_and_values_at_once(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/v1/jobs", ann, ALL_WRONG_V1)
        assert answer.status == 422
        assert list_places(answer.json()) == [
            "/code",
            "/colour",
            "/config/cpu_per_node",
            "/config/num_nodes",
            "/env/BAD NAME",
            "/env/NUMBER",
            "/framework",
            "/labels/kubernetes.io~1a",
            "/name",
            "/namespace",
            "/packages/1",
            "/packages/2",
            "/suspended",
            "/ttl_seconds",
            "/volumes/0/claim",
            "/volumes/0/mount_path",
            "/volumes/1/claim",
            "/volumes/2",
        ]

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({}, ["/framework", "/user_id"]),
        ({"framework": 3}, ["/framework", "/user_id"]),
        ({"user_id": None, "framework": "pytorch"}, ["/user_id"]),
    ],
    ids=["missing", "of another type", "null"],
)
def test_what_is_missing_is_named_once(tmp_path: Path, body: Any, want: list[str]) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        rest = {"namespace": "ann", "training_code": "print(1)"}
        answer = await plant.call("POST", "/api/trainjob/create", ann, {**rest, **body})
        assert (answer.status, list_places(answer.json())) == (422, want)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({"runtime": 5, "code": "print(1)"}, ["/runtime"]),
        ({"framework": "pytorch", "files": ["train.py"]}, ["/files"]),
        ({"framework": "pytorch", "archive": 1, "name": "Bad"}, ["/archive", "/name"]),
        ({"runtime": "nosuch", "code": "print(1)", "name": "Bad"}, ["/name", "/runtime"]),
        ({"runtime": "nosuch", "runtime_kind": "TrainingRuntime", "code": "x ="}, ["/code", "/runtime"]),
        ({"runtime": "nosuch", "code": "print(1)"}, ["/runtime"]),
        (
            {"framework": "fortran", "files": {"../x.py": ""}, "config": []},
            ["/config", "/entrypoint", "/files", "/framework"],
        ),
        ({"framework": "pytorch", "code": "a", "files": {}, "name": "Bad"}, ["/files", "/name"]),
        ({"framework": "pytorch", "archive": "%", "name": "Bad"}, ["/archive", "/name"]),
    ],
    ids=[
        "a runtime of another type",
        "files of another type",
        "an archive of another type",
        "an unknown runtime and a name",
        "an unknown runtime and code",
        "an unknown runtime",
        "paths and a framework",
        "two forms of code and a name",
        "no base64 and a name",
    ],
)
def test_errors_that_follow_from_others_are_not_reported(tmp_path: Path, body: Any, want: list[str]) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/v1/jobs", ann, body)
        assert (answer.status, list_places(answer.json())) == (422, want)

    play(tmp_path, scene)


def test_parameters_of_an_archive_are_named_at_once(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        query = "name=Bad&framework=fortran&num_nodes=many&cpu_per_node=lots&colour=red"
        path = f"/api/v1/jobs/from-archive?{query}"
        answer = await plant.call("POST", path, ann, pieces=[b"no archive"], content_type="application/gzip")
        assert answer.status == 422
        assert list_places(answer.json()) == ["/archive", "colour", "cpu_per_node", "framework", "name", "num_nodes"]

    play(tmp_path, scene)


def test_a_tenant_that_acts_for_another_user_is_told_so_first(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/trainjob/create", ann, {**GUIDE, "user_id": "bob", "framework": "x"})
        assert (answer.status, answer.json()["type"]) == (403, "urn:trainmaster:problem:not-yours")

    play(tmp_path, scene)
