"""Manifests through REST on a whole system in virtual time: read, checked, sent; and what waits is replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rest_plant import RestPlant, running_rest_plant
from tests.unit.rest.asgi import Answer
from trainmaster.api.resources import CONFIG_MAPS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: sent
spec:
  runtimeRef:
    name: plain
  trainer:
    numNodes: 1
    command: [python, -c, print(1)]
"""
CODE = {"runtime": "plain", "files": {"train.py": "import model\n", "pkg/model.py": "x = 1\n"}}


def play(tmp_path: Path, scene: Callable[[RestPlant, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"))

    run_virtual(main(), limit=86_400)


async def create(plant: RestPlant, token: str, **more: Any) -> str:
    answer = await plant.call("POST", "/api/v1/jobs", token, {**CODE, **more})
    assert answer.status == 201, answer.body
    return str(answer.json()["name"])


async def check(plant: RestPlant, token: str, text: str, query: str = "") -> Any:
    answer = await plant.call("POST", f"/api/v1/check?{query}", token, {"manifests": text})
    assert answer.status == 200, answer.body
    return answer.json()


async def send(plant: RestPlant, token: str, text: str, query: str = "") -> Answer:
    answer: Answer = await plant.call("POST", f"/api/v1/manifests?{query}", token, {"manifests": text})
    return answer


async def list_made(plant: RestPlant) -> list[str]:
    found = [
        *(await plant.rest.client.list(TRAIN_JOBS, "ann")).items,
        *(await plant.rest.client.list(PODS, "ann")).items,
    ]
    return [obj["metadata"]["name"] for obj in found]


def test_the_manifest_of_a_job_creates_it_again_with_its_code(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        name = await create(plant, ann, name="first", env={"A": "$(B)"})
        same = await plant.call("GET", f"/api/v1/jobs/{name}/manifest", ann)
        assert same.headers["content-type"].startswith("application/yaml")
        code, job = yaml.safe_load_all(same.body)
        assert (code["metadata"]["name"], job["metadata"]["name"]) == ("first-script", "first")
        for obj in (code, job):
            assert "status" not in obj and set(obj["metadata"]) <= {"name", "namespace", "labels", "annotations"}
        copy = await plant.call("GET", f"/api/v1/jobs/{name}/manifest?new_name=second", ann)
        assert b"first" not in copy.body
        done = await send(plant, ann, copy.body.decode())
        assert done.status == 200, done.body
        assert [(one["kind"], one["name"], one["done"]) for one in done.json()["items"]] == [
            ("ConfigMap", "second-script", "created"),
            ("TrainJob", "second", "created"),
        ]
        script = await plant.rest.client.get(CONFIG_MAPS, "second-script", "ann")
        assert script["metadata"]["ownerReferences"][0]["name"] == "second"
        assert set(script["data"].values()) == set(CODE["files"].values())  # type: ignore[attr-defined]
        listed = (await plant.call("GET", "/api/v1/jobs/second/code", ann)).json()
        assert ([one["path"] for one in listed["items"]], listed["source"]) == (
            ["pkg/model.py", "train.py"],
            "config-map",
        )
        assert (await plant.call("GET", f"/api/v1/jobs/{name}/manifest?new_name=No+Name", ann)).status == 422

    play(tmp_path, scene)


def test_a_check_names_lines_and_creates_nothing(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        good = await check(plant, ann, JOB)
        assert good["ok"] and good["items"][0]["kind"] == "TrainJob" and good["items"][0]["start"] is None
        (bad,) = (await check(plant, ann, JOB.replace("numNodes: 1", "nodes: 1")))["items"]
        assert [(one["line"], one["column"]) for one in bad["errors"]] == [(9, 5)]
        two = await check(plant, ann, f"kind: Zebra\napiVersion: v1\n---\n{JOB}")
        assert [item["ok"] for item in two["items"]] == [False, True] and not two["ok"]
        missing = await check(plant, ann, JOB.replace("name: plain", "name: none"))
        assert "none" in str(missing["items"][0]["errors"])
        for text, line in (("a:\n\tb: 1\n", 2), ("a: &x 1\nb: *x\n", 2), ("- x\n" * 150_000, 60_000)):
            (broken,) = (await check(plant, ann, text))["items"]
            assert [one["line"] for one in broken["errors"]] == [line], broken
        large = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\ndata:\n  a: |\n" + "    x\n" * 100_000
        assert (await check(plant, ann, large))["ok"]
        assert (await check(plant, ann, ""))["items"] == []
        assert await list_made(plant) == []

    play(tmp_path, scene)


def test_a_check_of_a_form_has_its_fields_and_its_manifest(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("POST", "/api/v1/check", ann, {"job": {**CODE, "name": "formed"}})
        found = answer.json()
        assert found["ok"], found
        code, job = yaml.safe_load_all(found["manifests"])
        assert (code["kind"], job["metadata"]["name"]) == ("ConfigMap", "formed")
        assert (await send(plant, ann, found["manifests"], "dry_run=true")).status == 200
        wrong = {
            **CODE,
            "name": "No",
            "files": {"train.py": "print(\n"},
            "env": {"1": "x"},
            "config": {"num_nodes": 5000},
        }
        found = (await plant.call("POST", "/api/v1/check", ann, {"job": wrong})).json()
        pointers = {one["pointer"] for one in found["problems"]}
        assert not found["ok"] and pointers >= {"/name", "/files", "/env/1", "/config/num_nodes"}
        both = await plant.call("POST", "/api/v1/check", ann, {"job": CODE, "manifests": JOB})
        assert both.status == 422

    play(tmp_path, scene)


def test_a_dry_run_says_what_would_be_done(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        done = (await send(plant, ann, JOB, "dry_run=true")).json()
        assert done["dry_run"] and [(one["name"], one["uid"], one["done"]) for one in done["items"]] == [
            ("sent", None, "created")
        ]
        with pytest.raises(NotFound):
            await plant.rest.client.get(TRAIN_JOBS, "sent", "ann")
        assert (await send(plant, ann, JOB)).status == 200
        again = await send(plant, ann, JOB)
        assert again.status == 409 and "line 1: TrainJob" in again.json()["detail"], again.body

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no objects"),
        ("a: [", "line 2"),
        ("kind: TrainJob\n", "apiVersion is missing"),
        ("apiVersion: v1\nkind: Pod\n", "metadata.name is missing"),
        ("apiVersion: v1\nkind: Zebra\nmetadata: {name: a}\n", "Zebra of v1 is not taken here"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: [x]}\n", "metadata.namespace"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: bob}\n", "for the namespace bob"),
        ("a: &x 1\nb: *x\n", "aliases"),
    ],
)
def test_what_cannot_be_read_sends_nothing(tmp_path: Path, text: str, words: str) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await send(plant, ann, text, "namespace=ann")
        assert answer.status == 422 and words in answer.json()["detail"], answer.body
        assert await list_made(plant) == []

    play(tmp_path, scene)


def test_what_was_written_before_a_refusal_is_named(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        text = (
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n---\n{JOB.replace('name: plain', 'name: none')}"
        )
        answer = await send(plant, ann, text)
        assert 400 <= answer.status < 500
        assert "written before it: ConfigMap c" in answer.json()["detail"], answer.body
        assert "line 5" in answer.json()["detail"]

    play(tmp_path, scene)


def test_nobody_writes_where_they_may_not(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        await plant.rest.add_tenant("bob")
        elsewhere = JOB.replace("name: sent", "name: sent\n  namespace: bob")
        assert (await send(plant, ann, elsewhere)).status == 403
        wide = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n"
        assert (await send(plant, ann, wide)).status == 403
        found = await check(plant, ann, elsewhere, "start=true")
        assert "bob" not in str(found["items"][0]["errors"]), "only its own runtimes and queue are read"

    play(tmp_path, scene)


def test_a_job_that_waits_is_replaced_and_one_that_runs_is_not(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        owner = plant.rest.owner
        patch = {"patch": {"spec": {"trainer": {"numNodes": 1}}}}
        running = await create(plant, ann, name="runs")
        await plant.find_pods("ann", running, 1)
        refused = await plant.call("POST", "/api/v1/jobs/runs/replace", ann, patch)
        assert (refused.status, refused.json()["type"].rpartition(":")[2]) == (409, "not-waiting")
        config = {"num_nodes": 3, "cpu_per_node": "60"}
        await create(plant, owner, name="waits", namespace="ann", user="ann", config=config)
        while not (await plant.call("GET", "/api/v1/jobs/waits", ann)).json()["reason"]:
            await plant.rest.clock.sleep(0.5)
        wrong: Any
        for wrong in ({}, {"metadata": {}}, {"spec": 1}, {"spec": {}, "status": {}}):
            assert (await plant.call("POST", "/api/v1/jobs/waits/replace", ann, {"patch": wrong})).status == 422
        made = await plant.call("POST", "/api/v1/jobs/waits/replace", ann, patch)
        assert made.status == 201, made.body
        name = made.json()["name"]
        assert name == "waits-2"
        new = await plant.rest.client.get(TRAIN_JOBS, name, "ann")
        assert new["spec"]["trainer"]["numNodes"] == 1
        assert (await plant.rest.client.get(CONFIG_MAPS, f"{name}-script", "ann"))["data"]
        while (await plant.call("GET", "/api/v1/jobs/waits", ann)).status != 404:
            await plant.rest.clock.sleep(0.5)

    play(tmp_path, scene)
