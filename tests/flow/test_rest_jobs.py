"""Jobs of /api/v1 on a whole system in virtual time: list, read, suspend, resume, restart, delete, explain, history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode
from tests.support.rest_plant import RestPlant, running_rest_plant
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, PODS
from trainmaster.api.v1jobs.frameworks import JAX, PYTORCH, V1Framework
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def play(tmp_path: Path, scene: Callable[[RestPlant], Awaitable[None]], node: ScriptedNode | None = None) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path, node) as plant:
            await scene(plant)

    run_virtual(main(), limit=86_400)


async def create(plant: RestPlant, token: str, user: str = "ann", **more: Any) -> str:
    body = {"user_id": user, "namespace": user, "framework": "pytorch", "training_code": "print(1)\n", **more}
    answer = await plant.call("POST", "/api/trainjob/create", token, {"config": {"num_nodes": 2}, **body})
    assert answer.status == 200, answer.body
    return str(answer.json()["trainjob_name"])


async def read(plant: RestPlant, token: str, path: str, want: int = 200) -> Any:
    answer = await plant.call("GET", f"/api/v1/{path}", token)
    assert answer.status == want, answer.body
    return answer.json()


async def wait_for(plant: RestPlant, token: str, job: str, state: str) -> Any:
    for _ in range(1000):
        found = await read(plant, token, f"jobs/{job}")
        if found["state"] == state:
            return found
        await plant.rest.clock.sleep(0.5)
    raise AssertionError(found)


def test_a_tenant_lists_and_reads_its_jobs_without_naming_the_namespace(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann, bob = await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob")
        first, second = await create(plant, ann), await create(plant, ann, framework="tensorflow")
        await create(plant, bob, "bob")
        await plant.find_pods("ann", first, 2)
        names = [item["name"] for item in (await read(plant, ann, "jobs"))["items"]]
        assert sorted(names) == sorted([first, second])
        assert len((await read(plant, plant.rest.owner, "jobs"))["items"]) == 3
        for query, want in (
            ("framework=tensorflow", [second]),
            ("runtime=pytorch-simple", [first]),
            ("user=ann&framework=pytorch", [first]),
            ("user=bob", []),
            ("label=trainmaster.dev/framework=pytorch&label=trainmaster.dev/user", [first]),
            ("state=Failed", []),
        ):
            assert [one["name"] for one in (await read(plant, ann, f"jobs?{query}"))["items"]] == want, query
        found = await wait_for(plant, ann, first, "Running")
        assert [(one["worker"], one["state"]) for one in found["workers"]] == [(0, "Running"), (1, "Running")]
        assert (found["restarts"], found["max_restarts"], found["verdict"]) == (0, 6, None)

    play(tmp_path, scene)


def test_pages_go_through_all_jobs_once(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        made = {await create(plant, ann) for _ in range(7)}
        seen: list[str] = []
        url = "jobs?limit=3"
        while True:
            page = await read(plant, ann, url)
            assert len(page["items"]) <= 3
            seen += [one["name"] for one in page["items"]]
            if page["continue"] is None:
                break
            url = f"jobs?limit=3&continue={page['continue']}"
        assert sorted(seen) == sorted(made)
        assert (await plant.call("GET", "/api/v1/jobs?continue=nonsense", ann)).status in (400, 410, 422)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "query", ["user=a,b!%3Dc", "framework=", "label=a%20in%20(b)", "label=!x", "label=a%3Db,c", "user=a%0Ab"]
)
def test_nothing_gets_into_the_selector_that_is_no_label(tmp_path: Path, query: str) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        answer = await plant.call("GET", f"/api/v1/jobs?{query}", ann)
        assert answer.status == 422, answer.body
        assert answer.json()["errors"][0]["parameter"] in ("user", "framework", "label")

    play(tmp_path, scene)


def test_an_answer_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann)
        await wait_for(plant, ann, job, "Running")
        answer = await plant.call("GET", f"/api/v1/jobs/{job}", ann)
        known = [("If-None-Match", answer.headers["etag"])]
        again = await plant.call("GET", f"/api/v1/jobs/{job}", ann, headers=known)
        assert (again.status, again.body) == (304, b"")
        assert (await plant.call("POST", f"/api/v1/jobs/{job}/suspend", ann)).status == 200
        assert (await plant.call("GET", f"/api/v1/jobs/{job}", ann, headers=known)).status == 200

    play(tmp_path, scene)


def test_a_job_is_suspended_resumed_and_restarted(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann)
        before = await plant.find_pods("ann", job, 2)
        for _ in range(2):
            answer = await plant.call("POST", f"/api/v1/jobs/{job}/suspend", ann)
            assert (answer.status, answer.json()["state"]) == (200, "Suspended")
        refused = await plant.call("POST", f"/api/v1/jobs/{job}/restart", ann, {})
        assert (refused.status, refused.json()["type"].rpartition(":")[2]) == (409, "suspended")
        await plant.rest.clock.sleep(30)
        assert (await plant.call("POST", f"/api/v1/jobs/{job}/resume", ann)).status == 200
        await wait_for(plant, ann, job, "Running")
        headers = [("Idempotency-Key", "once")]
        answers = [await plant.call("POST", f"/api/v1/jobs/{job}/restart", ann, {}, headers=headers) for _ in range(2)]
        assert answers[0].json() == answers[1].json() == {
            "name": job, "namespace": "ann", "attempt": answers[0].json()["attempt"], "created": False,
        }  # fmt: skip
        await plant.rest.clock.sleep(60)
        found = await wait_for(plant, ann, job, "Running")
        assert found["attempt"] == answers[0].json()["attempt"] > 0
        assert not set(before) & {one["pod"] for one in found["workers"]}

    play(tmp_path, scene)


def test_an_ended_job_runs_again_with_code_of_its_own(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann)
        ended = await wait_for(plant, ann, job, "Complete")
        assert ended["completed_at"] is not None
        assert (await plant.call("POST", f"/api/v1/jobs/{job}/suspend", ann)).status == 409
        headers = [("Idempotency-Key", "again")]
        made = [await plant.call("POST", f"/api/v1/jobs/{job}/restart", ann, {}, headers=headers) for _ in range(2)]
        assert made[0].json() == made[1].json()
        name = made[0].json()["name"]
        assert (name != job, made[0].json()["created"]) == (True, True)
        assert (await plant.call("DELETE", f"/api/v1/jobs/{job}", ann)).status == 200
        await plant.rest.clock.sleep(10)
        kube = plant.rest.as_token(ann)
        scripts = {one["metadata"]["name"] for one in (await kube.list(CONFIG_MAPS, "ann")).items}
        assert f"{name}-script" in scripts
        assert f"{job}-script" not in scripts
        for pod in (await kube.list(PODS, "ann")).items:
            mounted = {volume.get("configMap", {}).get("name") for volume in pod["spec"]["volumes"]}
            assert f"{job}-script" not in mounted
        named = await plant.call("POST", f"/api/v1/jobs/{name}/restart", ann, {"name": "Not A Name"})
        assert (named.status, named.json()["errors"][0]["pointer"]) == (422, "/name")

    play(tmp_path, scene, ScriptedNode())


def test_a_failure_is_told_with_its_verdict(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann)
        found = await wait_for(plant, ann, job, "Failed")
        assert found["verdict"]["exit_code"] == 3
        assert "ValueError" in found["verdict"]["last_words"]
        assert found["verdict"]["error"].startswith("ValueError: ")
        assert found["restarts"] == found["max_restarts"] == 6
        assert {one["state"] for one in found["workers"]} <= {"Failed"}

    play(tmp_path, scene, ScriptedNode(script=lambda pod, run: 3))


def test_a_job_that_waits_says_why_and_is_explained(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann, config={"num_nodes": 1, "gpu_per_node": 8})
        await plant.rest.clock.sleep(5)
        found = await read(plant, ann, f"jobs/{job}")
        assert (found["state"], bool(found["reason"])) == ("Pending", True)
        why = await read(plant, ann, f"jobs/{job}/explain")
        assert why["sentence"]
        assert (why["name"], why["namespace"]) == (job, "ann")
        assert (await plant.call("GET", "/api/v1/jobs/nothing/explain", ann)).status == 404

    play(tmp_path, scene)


def test_runtimes_are_listed_for_tenants(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        found = await read(plant, ann, "runtimes")
        assert "torch-distributed" in {one["name"] for one in found["items"]}
        assert {"pytorch", "tensorflow"} <= set(found["frameworks"])

    play(tmp_path, scene)


def test_what_was_printed_is_answered_merged_and_by_worker(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        for step in range(3):
            for number, pod in enumerate(pods):
                plant.papers.print(pod, f"worker {number} step {step}")
        whole = await read(plant, ann, f"jobs/{job}/logs")
        assert [line["text"] for line in whole["lines"]] == [
            f"worker {number} step {step}" for step in range(3) for number in range(2)
        ]
        one = await read(plant, ann, f"jobs/{job}/logs?worker=1&tail_lines=2")
        assert [line["text"] for line in one["lines"]] == ["worker 1 step 1", "worker 1 step 2"]
        assert (await read(plant, ann, f"jobs/{job}/logs?attempt=7"))["lines"] == []

    play(tmp_path, scene)


def test_what_is_not_there_is_told_with_the_way_to_history(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        for path in ("jobs/nothing", "jobs/nothing/logs", "history/nothing", "history/nothing/logs"):
            problem = await read(plant, ann, path, 404)
            assert "/api/v1/history" in problem["hint"]
        assert (await read(plant, ann, "history"))["items"] == []
        problem = await read(plant, plant.rest.owner, "jobs/nothing", 422)
        assert problem["errors"][0]["parameter"] == "namespace"
        for _ in range(2):
            assert (await plant.call("DELETE", "/api/v1/jobs/nothing", ann)).status == 200

    play(tmp_path, scene)


def make_v1_job(framework: V1Framework) -> Object:
    containers = [{"name": framework.container, "image": "python", "command": ["true"]}]
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": containers}}}
    head = {"apiVersion": "kubeflow.org/v1", "kind": framework.kind, "metadata": {"name": "a"}}
    return {**head, "spec": {framework.replicas_field: {"Worker": replica}}}


def test_jobs_of_all_kinds_are_listed_read_and_deleted_by_their_tenant_only(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann, bob = await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob")
        made = await create(plant, ann)
        await plant.rest.client.create(PYTORCH.gvr, make_v1_job(PYTORCH), "ann")
        listed = (await read(plant, ann, "jobs"))["items"]
        assert {one["name"]: one["kind"] for one in listed} == {made: "TrainJob", "a": "PyTorchJob"}
        assert [one["name"] for one in (await read(plant, ann, "jobs?kind=pytorchjob"))["items"]] == ["a"]
        assert (await read(plant, ann, "jobs?kind=pod", 422))["errors"][0]["parameter"] == "kind"
        found = await wait_for(plant, ann, "a", "Running")
        assert [(one["job"], one["worker"]) for one in found["workers"]] == [("worker", 0)]
        plant.papers.print("a-worker-0", "hello")
        assert [line["text"] for line in (await read(plant, ann, "jobs/a/logs"))["lines"]] == ["hello"]
        assert (await read(plant, ann, "jobs/a/explain"))["kind"] == "PyTorchJob"
        for path in ("jobs/a?namespace=ann", "jobs/a/logs?namespace=ann", "jobs?kind=PyTorchJob&namespace=ann"):
            await read(plant, bob, path, 403)
        assert (await plant.call("DELETE", "/api/v1/jobs/a?namespace=ann", bob)).status == 403
        await plant.rest.client.create(JAX.gvr, make_v1_job(JAX), "ann")
        problem = await read(plant, ann, "jobs/a", 409)
        assert problem["hint"] == "send kind=PyTorchJob or kind=JAXJob"
        assert (await plant.call("DELETE", "/api/v1/jobs/a", ann)).status == 409
        assert (await plant.call("DELETE", "/api/v1/jobs/a?kind=JAXJob", ann)).status == 200
        assert (await read(plant, ann, "jobs/a"))["kind"] == "PyTorchJob"

    play(tmp_path, scene, ScriptedNode(seconds=600))


def test_a_v1_job_is_suspended_resumed_and_restarted_like_a_trainjob(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        await plant.rest.client.create(PYTORCH.gvr, make_v1_job(PYTORCH), "ann")
        await wait_for(plant, ann, "a", "Running")
        assert (await plant.call("POST", "/api/v1/jobs/a/suspend", ann)).json()["state"] == "Suspended"
        refused = await plant.call("POST", "/api/v1/jobs/a/restart", ann, {})
        assert (refused.status, refused.json()["type"].rpartition(":")[2]) == (409, "suspended")
        assert (await plant.call("POST", "/api/v1/jobs/a/resume", ann)).status == 200
        await wait_for(plant, ann, "a", "Running")
        before = await plant.rest.client.get(PODS, "a-worker-0", "ann")
        headers = [("Idempotency-Key", "once")]
        answers = [await plant.call("POST", "/api/v1/jobs/a/restart", ann, {}, headers=headers) for _ in range(2)]
        want = {"name": "a", "namespace": "ann", "attempt": 1, "created": False}
        assert [one.json() for one in answers] == [want, want]
        await plant.rest.clock.sleep(60)
        found = await wait_for(plant, ann, "a", "Running")
        assert (found["attempt"], [one["attempt"] for one in found["workers"]]) == (1, [1])
        after = await plant.rest.client.get(PODS, "a-worker-0", "ann")
        assert before["metadata"]["uid"] != after["metadata"]["uid"]

    play(tmp_path, scene, ScriptedNode(seconds=6000))


def test_an_ended_v1_job_runs_again_under_a_new_name(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann = await plant.rest.add_tenant("ann")
        await plant.rest.client.create(PYTORCH.gvr, make_v1_job(PYTORCH), "ann")
        await wait_for(plant, ann, "a", "Complete")
        headers = [("Idempotency-Key", "again")]
        made = [await plant.call("POST", "/api/v1/jobs/a/restart", ann, {}, headers=headers) for _ in range(2)]
        assert made[0].status == 200, made[0].body
        assert made[0].json() == made[1].json()
        plain = await plant.call("POST", "/api/v1/jobs/a/restart", ann, {})
        assert (plain.json()["name"], plain.json()["created"]) == ("a-2", True)
        assert (await wait_for(plant, ann, "a-2", "Complete"))["kind"] == "PyTorchJob"

    play(tmp_path, scene, ScriptedNode())
