"""Records through /api/v1: filters over namespaces, curves of deleted jobs, running a job again, deleting records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_rest_jobs import create, read
from tests.support.rest_plant import RestPlant, running_rest_plant
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, ROLE_BINDINGS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.history.archive import Archive
from trainmaster.history.curves.series import Point
from trainmaster.history.curves.usage import RankUsage, UsagePoint
from trainmaster.history.record import RecordedDeletion, RecordSources, build_record
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

ENDS = {"bert": ("2026-11-10T10:00:00Z", "Complete"), "gpt": ("2026-11-12T10:00:00Z", "Failed")}
CODE = {"framework": "pytorch", "code": "print(1)\n"}


def play(tmp_path: Path, scene: Callable[[RestPlant, str, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob"))

    run_virtual(main(), limit=86_400)


def make_job(name: str, namespace: str, user: str = "", uid: str = "", **labels: str) -> Object:
    at, end = ENDS.get(name, ("2026-11-11T10:00:00Z", "Complete"))
    if user:
        labels["trainmaster.dev/user"] = user
    metrics = [{"name": "loss", "value": "0.25"}, {"name": "__proto__", "value": "1e308"}]
    return {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"{namespace}-{name}",
            "creationTimestamp": "2026-11-10T09:00:00Z",
            "labels": labels,
        },
        "spec": {"runtimeRef": {"name": "pytorch-simple"}, "trainer": {"numNodes": 2, "command": ["true"]}},
        "status": {
            "conditions": [{"type": end, "status": "True", "lastTransitionTime": at, "reason": "r", "message": "m"}],
            "trainerStatus": {"metrics": metrics},
        },
    }


def keep(plant: RestPlant, *jobs: Object, deleted: bool = True) -> Archive:
    archive = Archive.open(plant.rest.api.world.home.history)
    deletion = RecordedDeletion("2026-11-13T00:00:00Z", "ann") if deleted else None
    archive.put([build_record(RecordSources(job), deletion) for job in jobs])
    return archive


async def find(plant: RestPlant, token: str, query: str = "") -> list[str]:
    return [item["name"] for item in (await read(plant, token, f"history?{query}"))["items"]]


def test_records_are_found_by_all_filters_in_all_namespaces_that_one_may_read(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        owner = plant.rest.owner
        keep(
            plant,
            make_job("bert", "ann", "ann", team="nlp"),
            make_job("gpt", "ann", "carl", team="vision"),
            make_job("other", "bob", "bob", team="nlp"),
        ).close()
        assert await find(plant, owner) == ["gpt", "other", "bert"]
        assert await find(plant, ann) == ["gpt", "bert"]
        assert await find(plant, bob) == ["other"]
        assert (await plant.call("GET", "/api/v1/history?namespace=bob", ann)).status == 403
        for query, want in {
            "user=carl": ["gpt"],
            "q=NLP": ["other", "bert"],
            "q=team=nlp%20bert": ["bert"],
            "q=pytorch-simple%20ann": ["gpt", "bert"],
            "q=%25": [],
            "q=nothing": [],
            "runtime=pytorch-simple&state=Failed": ["gpt"],
            "runtime=other": [],
            "since=2026-11-11T10:00:00Z": ["gpt", "other"],
            "until=2026-11-11T10:00:00Z": ["bert"],
            "since=2026-11-11T19:00:00%2B09:00&until=2026-11-12T00:00:00Z": ["other"],
            "namespace=bob": ["other"],
            "limit=1": ["gpt"],
        }.items():
            assert await find(plant, owner, query) == want, query
        (first, *_) = (await read(plant, ann, "history?name=bert"))["items"]
        assert (first["user"], first["nodes"], first["labels"]["team"]) == ("ann", 2, "nlp")
        assert first["metrics"] == {"loss": "0.25", "__proto__": "1e308"}
        assert (await read(plant, ann, f"history/{first['uid']}"))["labels"] == first["labels"]
        page = await read(plant, owner, "history?limit=2")
        rest = await read(plant, owner, f"history?limit=2&continue={page['continue']}")
        assert [item["name"] for item in rest["items"]] == ["bert"]

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("since=yesterday", ["since"]),
        ("since=2026-11-11&until=x&continue=x", ["continue", "since", "until"]),
        ("until=99999-01-01T00:00:00Z", ["until"]),
        ("limit=0", ["limit"]),
        ("state=Lost", ["state"]),
        ("q=" + "x" * 201, ["q"]),
    ],
)
def test_filters_that_are_none_are_all_named(tmp_path: Path, query: str, parameters: list[str]) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        problem = await read(plant, ann, f"history?{query}", 422)
        assert [error["parameter"] for error in problem["errors"]] == parameters

    play(tmp_path, scene)


def test_the_curves_of_a_deleted_job_are_there_for_those_who_may_read_it(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        archive = keep(plant, make_job("bert", "ann"))
        first = Point(10, 1, None, {"loss": 1e308, "current_step": 1.0})
        second = Point(20, 1, None, {"loss": None, "current_step": 5.0}, 1)
        archive.add_points([("ann-bert", first), ("ann-bert", second)])
        archive.add_usage([("ann-bert", UsagePoint(10, 0, {("node", 1): RankUsage(1500, 3)}))])
        archive.close()
        found = await read(plant, ann, "history/ann-bert/series")
        assert found["metrics"] == [{"name": "loss", "values": [1e308, None]}]
        assert (found["times"], found["steps"], found["attempts"]) == ([10, 20], [1.0, 5.0], [0, 1])
        assert (await read(plant, ann, "history/ann-bert/series?after=10"))["times"] == [20]
        usage = await read(plant, ann, "history/ann-bert/usage")
        assert (usage["now"], usage["ranks"][0]["cpu"]) == ([], [1.5])
        for part in ("series", "usage"):
            assert (await plant.call("GET", f"/api/v1/history/ann-bert/{part}?namespace=ann", bob)).status == 403
            assert (await plant.call("GET", f"/api/v1/history/ann-bert/{part}", bob)).status == 404

    play(tmp_path, scene)


def test_a_job_that_exists_has_its_curves_and_what_it_uses_now(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        uid = (await read(plant, ann, f"jobs/{job}"))["uid"]
        archive = keep(plant)
        archive.add_points([(uid, Point(10, 1, None, {"loss": 1.0}))])
        archive.close()
        assert (await read(plant, ann, f"jobs/{job}/series"))["times"] == [10]
        usage = await read(plant, ann, f"jobs/{job}/usage")
        assert [(one["worker"], one["cpu"], one["node"]) for one in usage["now"]] == [
            (0, None, "local"),
            (1, None, "local"),
        ]
        assert (await read(plant, ann, f"jobs/{job}/usage?range=week", 422))["errors"][0]["parameter"] == "range"
        for part in ("series", "usage"):
            assert (await plant.call("GET", f"/api/v1/jobs/{job}/{part}?namespace=ann", bob)).status == 403

    play(tmp_path, scene)


def test_a_deleted_job_runs_again_under_its_own_name_and_then_under_others(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        keep(plant, make_job("bert", "ann", team="nlp")).close()
        path = "/api/v1/history/ann-bert/rerun"
        assert (await plant.call("POST", f"{path}?namespace=ann", bob, {})).status == 403
        made = [(await plant.call("POST", path, ann, {})).json() for _ in range(2)]
        assert [one["name"] for one in made] == ["bert", "bert-2"] and made[0]["created"] is True
        named = await plant.call("POST", path, ann, {"name": "mine"})
        assert named.json()["name"] == "mine"
        assert (await plant.call("POST", path, ann, {"name": "mine"})).status == 409
        assert (await plant.call("POST", path, ann, {"name": "Mine!"})).status == 422
        job = await plant.rest.client.get(TRAIN_JOBS, "bert", "ann")
        assert job["metadata"]["labels"]["team"] == "nlp" and "conditions" not in job.get("status", {})
        assert (await read(plant, ann, "jobs/bert"))["rerun_of"] == "bert ann-bert"
        headers = [("idempotency-key", "once")]
        again = [(await plant.call("POST", path, ann, {}, headers=headers)).json()["name"] for _ in range(2)]
        assert again[0] == again[1] not in ("bert", "bert-2", "mine")

    play(tmp_path, scene)


def test_a_job_whose_code_went_with_it_is_not_run_with_other_code(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        made = (await plant.call("POST", "/api/v1/jobs", ann, {**CODE, "name": "mine"})).json()
        raw = dict(await plant.rest.client.get(TRAIN_JOBS, "mine", "ann"))
        raw["status"] = make_job("mine", "ann")["status"]
        path = f"/api/v1/history/{made['uid']}/rerun"
        keep(plant, raw, deleted=False).close()
        assert (await plant.call("POST", path, ann, {})).json()["name"] == "mine-2"
        assert (await plant.call("DELETE", "/api/v1/jobs/mine", ann)).status == 200
        keep(plant, raw).close()
        while await find_script(plant, "mine"):
            await plant.rest.clock.sleep(1)
        refused = await plant.call("POST", path, ann, {})
        assert (refused.status, refused.json()["type"].rpartition(":")[2]) == (409, "code-gone")
        # A later job of the same name has code of its own.
        assert (await plant.call("POST", "/api/v1/jobs", ann, {**CODE, "name": "mine"})).status == 201
        assert (await plant.call("POST", path, ann, {})).json()["type"].endswith("code-gone")

    play(tmp_path, scene)


async def find_script(plant: RestPlant, job: str) -> bool:
    found = (await plant.rest.client.list(CONFIG_MAPS, "ann")).items
    return any(item["metadata"]["name"] == f"{job}-script" for item in found)


def test_a_record_is_deleted_once_its_job_is_gone_by_those_who_may_delete_jobs(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        keep(plant, make_job("bert", "ann")).close()
        keep(plant, make_job("there", "ann"), deleted=False).close()
        path = "/api/v1/history/ann-bert"
        assert (await plant.call("DELETE", f"{path}?namespace=ann", bob)).status == 403
        assert (await plant.call("DELETE", "/api/v1/history/ann-there", ann)).json()["type"].endswith("job-exists")
        done = await plant.call("DELETE", path, ann)
        assert (done.status, done.json()["name"]) == (200, "bert")
        assert (await plant.call("DELETE", path, ann)).status == 404
        assert await find(plant, ann) == ["there"]
        lines = [line for line in plant.rest.read_audit() if line["resource"] == "jobrecords"]
        assert [(line["verb"], line["name"], line["code"]) for line in lines] == [("delete", "ann-bert", 200)]

    play(tmp_path, scene)


def test_who_may_only_read_jobs_may_not_delete_their_records(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        keep(plant, make_job("bert", "ann")).close()
        rbac = "rbac.authorization.k8s.io"
        binding: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": "reads"}}
        binding["roleRef"] = {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"}
        binding["subjects"] = [{"kind": "ServiceAccount", "name": "tenant", "namespace": "bob"}]
        await plant.rest.client.create(ROLE_BINDINGS, binding, "ann")
        assert (await plant.call("GET", "/api/v1/history/ann-bert?namespace=ann", bob)).status == 200
        for method, path in (("DELETE", ""), ("POST", "/rerun")):
            answer = await plant.call(method, f"/api/v1/history/ann-bert{path}?namespace=ann", bob)
            assert answer.status == 403, (method, answer.body)

    play(tmp_path, scene)


def test_what_a_job_shows_itself_is_not_explained_again(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, bob: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        status = {"status": {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2100-01-31T12:00:00Z"}}}
        await plant.rest.client.patch(TRAIN_JOBS, job, PatchType.MERGE, status, "ann", subresource="status")
        assert (await read(plant, ann, f"jobs/{job}"))["progress"]["percent"] == 42
        assert (await read(plant, ann, f"jobs/{job}/explain"))["facts"] == []

    play(tmp_path, scene)
