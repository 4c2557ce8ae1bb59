"""`GET /api/v1/stream` in virtual time: the table of jobs, details, logs; reconnects, slow readers, other tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode
from tests.flow.test_rest_jobs import create, wait_for
from tests.support.rest_plant import Event, Listener, RestPlant, running_rest_plant
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.client.contract import PatchType
from trainmaster.rest.models.jobs import JobDetail
from trainmaster.rest.models.series import RankNow
from trainmaster.rest.models.streams import JobEvent, LogEvent, MarkEvent
from trainmaster.rest.services.live.job_rows import COLUMNS
from trainmaster.rest.services.live.topics import MOST_TOPICS
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

STREAM = "/api/v1/stream"


def play(tmp_path: Path, scene: Callable[[RestPlant, str], Awaitable[None]], node: ScriptedNode | None = None) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path, node) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"))

    run_virtual(main(), limit=86_400)


class Page:
    """What a page knows that reads one stream: as the events say it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.is_synced = False
        self.resets = 0
        self.detail: dict[str, Any] = {}
        self.lines: list[str] = []
        self.events: list[tuple[str, ...]] = []
        self.kinds: list[str] = []
        self.last_id = ""

    async def read(self, stream: Listener, until: Callable[[Event], bool]) -> Event:
        while (event := await stream.next()) is not None:
            self.take(event)
            if until(event):
                return event
        raise AssertionError(f"the stream ended after {self.kinds}")

    def take(self, event: Event) -> None:
        self.kinds.append(event.kind)
        self.last_id, data = event.id, dict(event.data)
        topic = data.pop("topic")
        if event.kind == "rows":
            for row in data["rows"]:
                self.put(row)
        elif event.kind == "row":
            self.put(data["row"])
        elif event.kind == "gone" and topic == "jobs":
            self.rows.pop((data["kind"], data["namespace"], data["name"]), None)
        elif event.kind == "synced":
            self.is_synced = True
            assert data["count"] == len(self.rows)
        elif event.kind == "reset":
            self.resets += 1
            self.rows.clear()
        elif event.kind == "detail":
            self.detail = JobDetail.model_validate(data["job"]).model_dump()
        elif event.kind == "event":
            told = JobEvent.model_validate(data["event"])
            self.events.append(tuple(map(str, told.model_dump().values())))
        elif event.kind == "log":
            self.lines += [line.text for line in LogEvent.model_validate(data).lines]
        elif event.kind == "mark":
            MarkEvent.model_validate(data)

    def put(self, row: list[Any]) -> None:
        named = dict(zip(COLUMNS, row, strict=True))
        self.rows[named["kind"], named["namespace"], named["name"]] = named


def is_synced(event: Event) -> bool:
    return event.kind == "synced"


def test_rows_come_first_then_each_change_and_each_end(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        first = await create(plant, ann)
        page = Page()
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann) as stream:
            await page.read(stream, is_synced)
            assert set(page.rows) == {("TrainJob", "ann", first)}
            second = await create(plant, ann)
            await page.read(stream, lambda event: event.kind == "row" and second in event.data["row"])
            row = page.rows["TrainJob", "ann", second]
            assert (row["user"], row["framework"], row["restarts"]) == ("ann", "pytorch", 0)
            while page.rows["TrainJob", "ann", second]["state"] != "Running":
                await page.read(stream, lambda event: True)
            assert (await plant.call("DELETE", f"/api/v1/jobs/{first}", ann)).status == 200
            gone = await page.read(stream, lambda event: event.kind == "gone")
            assert (gone.data["name"], gone.data["namespace"], gone.data["kind"]) == (first, "ann", "TrainJob")
        assert set(page.rows) == {("TrainJob", "ann", second)}

    play(tmp_path, scene)


def test_a_page_that_comes_again_gets_only_what_has_changed(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        jobs = [await create(plant, ann) for _ in range(3)]
        page = Page()
        for job in jobs:
            await wait_for(plant, ann, job, "Running")
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann) as stream:
            await page.read(stream, is_synced)
        assert (await plant.call("DELETE", f"/api/v1/jobs/{jobs[0]}", ann)).status == 200
        new = await create(plant, ann)
        page.kinds.clear()
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann, last_id=page.last_id) as stream:
            await page.read(stream, lambda event: ("TrainJob", "ann", new) in page.rows)
            while ("TrainJob", "ann", jobs[0]) in page.rows:
                await page.read(stream, lambda event: True)
        assert set(page.kinds) <= {"row", "gone"}
        # Later than the table is kept for.
        await plant.rest.clock.sleep(60)
        assert plant.rest.backend.sources.count == 0
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann, last_id=page.last_id) as stream:
            await page.read(stream, is_synced)
        assert page.resets == 1 and len(page.rows) == 3

    play(tmp_path, scene)


def test_a_stream_that_is_cut_among_the_first_rows_begins_again(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        page = Page()
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann) as stream:
            await page.read(stream, lambda event: event.kind == "rows")
        async with plant.listen(f"{STREAM}?topic=jobs", token=ann, last_id=page.last_id) as stream:
            await page.read(stream, is_synced)
        assert page.resets == 1 and set(page.rows) == {("TrainJob", "ann", job)}

    play(tmp_path, scene)


def test_thousands_of_rows_come_in_portions(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        raw: dict[str, Any] = {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob"}
        raw |= {"spec": {"runtimeRef": {"name": "pytorch-simple"}, "suspend": True}}
        for number in range(1201):
            await plant.rest.client.create(TRAIN_JOBS, {**raw, "metadata": {"name": f"job-{number}"}}, "default")
        page = Page()
        async with plant.listen(f"{STREAM}?topic=jobs", token=plant.rest.owner) as stream:
            first = await page.read(stream, lambda event: event.kind == "rows")
            assert len(first.data["rows"]) == 500 and first.data["columns"] == list(COLUMNS)
            await page.read(stream, is_synced)
        assert len(page.rows) == 1201 and page.kinds.count("rows") <= 4

    play(tmp_path, scene)


def test_administrators_see_all_namespaces_and_tenants_only_theirs(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        bob = await plant.rest.add_tenant("bob")
        theirs = {"ann": await create(plant, ann), "bob": await create(plant, bob, "bob")}
        for token, names in ((ann, {"ann"}), (bob, {"bob"}), (plant.rest.owner, {"ann", "bob"})):
            page = Page()
            async with plant.listen(f"{STREAM}?topic=jobs", token=token) as stream:
                await page.read(stream, is_synced)
            assert set(page.rows) == {("TrainJob", name, theirs[name]) for name in names}
        for topic in ("jobs", f"job:bob/{theirs['bob']}", f"log:bob/{theirs['bob']}", "job:bob/nothing"):
            more = "&namespace=bob" if topic == "jobs" else ""
            async with plant.listen(f"{STREAM}?topic={topic}{more}", token=ann) as stream:
                event = await stream.next()
                assert event is not None and event.kind == "problem", topic
                assert (event.data["topic"], event.data["status"]) == (topic, 403)
                assert theirs["bob"] not in event.data["detail"].replace(topic, "") or topic != "jobs"
                assert await stream.next() is None
        names = (await plant.call("GET", "/api/v1/namespaces", ann)).json()
        assert names == {"items": ["ann"]}
        assert {"ann", "bob"} <= set((await plant.call("GET", "/api/v1/namespaces", plant.rest.owner)).json()["items"])

    play(tmp_path, scene)


def test_jobs_of_v1_kinds_are_rows_too(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        containers = [{"name": PYTORCH.container, "image": "python", "command": ["true"]}]
        replica = {"replicas": 1, "template": {"spec": {"containers": containers}}}
        head = {"apiVersion": "kubeflow.org/v1", "kind": PYTORCH.kind, "metadata": {"name": "old"}}
        page = Page()
        async with plant.listen(f"{STREAM}?topic=jobs&topic=job:ann/PyTorchJob/old", token=ann) as stream:
            problem = await page.read(stream, lambda event: event.kind == "problem")
            assert (problem.data["topic"], problem.data["status"]) == ("job:ann/PyTorchJob/old", 404)
            job = {**head, "spec": {PYTORCH.replicas_field: {"Master": replica}}}
            await plant.rest.client.create(PYTORCH.gvr, job, "ann")
            await page.read(stream, lambda event: ("PyTorchJob", "ann", "old") in page.rows)
        async with plant.listen(f"{STREAM}?topic=job:ann/PyTorchJob/old", token=ann) as stream:
            await page.read(stream, lambda event: event.kind == "detail")
        assert page.detail["kind"] == "PyTorchJob"

    play(tmp_path, scene)


def test_details_events_and_log_of_one_job_in_one_stream(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        page = Page()
        url = f"{STREAM}?topic=job:ann/{job}&topic=log:ann/{job}"
        async with plant.listen(url, token=ann) as stream:
            plant.papers.print(pods[0], "one")
            await page.read(stream, lambda event: page.lines == ["one"])
            while not page.detail or page.detail["state"] != "Running" or len(page.detail["workers"]) < 2:
                await page.read(stream, lambda event: event.kind == "detail")
        plant.papers.print(pods[1], "two")
        before = len(page.events)
        await plant.rest.clock.sleep(30)
        page.kinds.clear()
        async with plant.listen(url, token=ann, last_id=page.last_id) as stream:
            await page.read(stream, lambda event: page.lines == ["one", "two"])
            assert (await plant.call("POST", f"/api/v1/jobs/{job}/suspend", ann)).status == 200
            await page.read(stream, lambda event: page.detail["state"] == "Suspended")
            assert (await plant.call("DELETE", f"/api/v1/jobs/{job}", ann)).status == 200
            for pod in pods:
                plant.papers.end(pod)
            kinds = set()
            while (event := await stream.next()) is not None:
                page.take(event)
                kinds.add((event.kind, event.data["topic"].partition(":")[0]))
        assert {("gone", "job"), ("end", "log")} <= kinds
        assert page.lines == ["one", "two"]
        assert len(page.events) == len(set(page.events)) >= before
        answer = await plant.call("GET", url, ann, headers=[("Last-Event-ID", page.last_id)])
        assert (answer.status, answer.body) == (204, b"")

    play(tmp_path, scene)


def test_a_job_made_anew_under_its_name_is_another_one(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        body = {"framework": "pytorch", "code": "print(1)\n", "name": "again"}
        job = (await plant.call("POST", "/api/v1/jobs", ann, body)).json()["name"]
        page = Page()
        async with plant.listen(f"{STREAM}?topic=job:ann/{job}", token=ann) as stream:
            await page.read(stream, lambda event: event.kind == "detail")
        uid = page.detail["uid"]
        assert (await plant.call("DELETE", f"/api/v1/jobs/{job}", ann)).status == 200
        await plant.rest.clock.sleep(60)
        assert (await plant.call("POST", "/api/v1/jobs", ann, body)).status == 201
        async with plant.listen(f"{STREAM}?topic=job:ann/{job}", token=ann, last_id=page.last_id) as stream:
            gone = await page.read(stream, lambda event: event.kind == "gone")
            assert (gone.data["uid"], gone.data["state"]) == (uid, "Deleted")
            assert await stream.next() is None

    play(tmp_path, scene)


def test_tail_lines_begins_so_many_lines_before_the_end(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        plant.papers.print(pods[0], *(f"line {number}" for number in range(1000)))
        url, page = f"{STREAM}?topic=log:ann/{job}&tail_lines=10", Page()
        async with plant.listen(url, token=ann) as stream:
            await page.read(stream, lambda event: "line 999" in page.lines)
            plant.papers.print(pods[1], "after")
            await page.read(stream, lambda event: "after" in page.lines)
        assert page.lines == [*(f"line {number}" for number in range(990, 1000)), "after"]
        async with plant.listen(url, token=ann, last_id=page.last_id) as stream:
            plant.papers.print(pods[0], "last")
            await page.read(stream, lambda event: "last" in page.lines)
        assert page.lines[-2:] == ["after", "last"]

    play(tmp_path, scene)


def test_many_followers_of_one_log_read_it_once(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        plant.papers.print(pods[0], "one")
        pages = [Page() for _ in range(20)]

        async def follow(page: Page) -> None:
            async with plant.listen(f"{STREAM}?topic=log:ann/{job}", token=ann) as stream:
                await page.read(stream, lambda event: "two" in page.lines)
                await ready.wait()

        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for page in pages:
                group.create_task(follow(page))
            await plant.rest.clock.sleep(5)
            assert plant.papers.readers == 2, "one for each Pod"
            plant.papers.print(pods[1], "two")
            await plant.rest.clock.sleep(5)
            ready.set()
        assert all(page.lines == ["one", "two"] for page in pages)
        assert plant.papers.readers == 0

    play(tmp_path, scene)


def test_a_page_that_reads_slowly_gets_the_newest_rows_and_every_line(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        page, quick = Page(), Page()
        url = f"{STREAM}?topic=jobs&topic=log:ann/{job}"
        many = [f"line {number} {'x' * 100}" for number in range(30_000)]
        async with plant.listen(url, token=ann) as slow, plant.listen(url, token=ann) as other:
            await page.read(slow, is_synced)
            slow.blocked = True
            for number in range(100):
                label = {"metadata": {"labels": {"turn": str(number)}}}
                await plant.rest.client.patch(TRAIN_JOBS, job, PatchType.MERGE, label, "ann")
            plant.papers.print(pod, *many)
            await quick.read(other, lambda event: len(quick.lines) == len(many))
            assert quick.lines == many
            await slow.unblock()
            page.kinds.clear()
            await page.read(slow, lambda event: len(page.lines) == len(many))
        assert page.lines == many
        assert page.rows["TrainJob", "ann", job]["labels"]["turn"] == "99"
        assert page.kinds.count("row") < 20

    play(tmp_path, scene)


def test_who_leaves_frees_everything(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        await plant.rest.clock.sleep(60)
        before = len(asyncio.all_tasks())
        async with plant.listen(f"{STREAM}?topic=jobs&topic=job:ann/{job}&topic=log:ann/{job}", token=ann) as stream:
            await stream.next()
        await plant.rest.clock.sleep(60)
        assert (plant.streams.count, plant.papers.readers, len(asyncio.all_tasks())) == (0, 0, before)
        assert plant.rest.backend.sources.count == 0

    play(tmp_path, scene)


def test_a_topic_whose_right_ends_is_cut_and_a_revoked_token_ends_the_stream(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        page = Page()
        async with plant.listen(f"{STREAM}?topic=jobs&topic=job:ann/{job}", token=ann) as stream:
            await page.read(stream, is_synced)
            assert (await plant.call("POST", "/api/v1/tenants/ann/rotate", plant.rest.owner, {})).status == 200
            event = await stream.next()
            while event is not None and event.kind != "problem":
                event = await stream.next()
            assert event is not None and event.data["status"] == 401
            assert await stream.next() is None

    play(tmp_path, scene)


def test_a_stream_that_is_cut_at_any_byte_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        url, page = f"{STREAM}?topic=log:ann/{job}&topic=jobs", Page()
        await plant.rest.clock.sleep(10)
        async with plant.listen(url, token=ann) as stream:
            await page.read(stream, is_synced)
            before = page.last_id
            for number in range(3):
                plant.papers.print(pods[number % 2], f"line {number}")
                await plant.rest.clock.sleep(1)
            label = {"metadata": {"labels": {"turn": "1"}}}
            await plant.rest.client.patch(TRAIN_JOBS, job, PatchType.MERGE, label, "ann")
            await plant.rest.clock.sleep(1)
            body = stream.body
        assert body.count(b"event: log") == 3 and body.count(b"event: row") == 1
        for cut in range(len(body) + 1):
            page.lines, page.last_id = [], before
            first, again = Listener(body=body[:cut], ended=True), Page()
            while (event := await first.next()) is not None:
                page.take(event)
            again.rows = page.rows
            async with plant.listen(url, token=ann, last_id=page.last_id) as stream:
                while page.lines + again.lines != ["line 0", "line 1", "line 2"]:
                    again.take(await stream.next() or pytest.fail("it ended"))
                await plant.rest.clock.sleep(0.5)
                while b"data: " in stream.body:
                    again.take(await stream.next() or pytest.fail("it ended"))
            assert again.resets == 0
            assert page.rows["TrainJob", "ann", job]["labels"]["turn"] == "1"
            assert page.lines + again.lines == ["line 0", "line 1", "line 2"]

    play(tmp_path, scene)


def test_an_administrator_drains_the_machine_and_a_tenant_is_told_and_may_not(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        owner, url = plant.rest.owner, "/api/v1/nodes/local"
        job = await create(plant, ann)
        await plant.rest.clock.sleep(10)
        assert (await plant.call("POST", f"{url}/drain", ann, {})).status == 403
        assert (await plant.call("POST", "/api/v1/nodes/other/drain", owner, {})).status == 404
        answer = await plant.call("POST", f"{url}/drain", owner, {"reason": "new kernel"})
        assert answer.status == 202 and answer.json()["drain"]["reason"] == "new kernel"
        await plant.rest.clock.sleep(10)
        state = (await plant.call("GET", f"{url}/drain", owner)).json()
        assert state["complete"] and [one["name"] for one in state["suspended"]] == [job]
        node = (await plant.call("GET", url, owner)).json()
        assert node["drain"] == state["drain"] and node["cordoned"]
        late = await create(plant, ann)
        await plant.rest.clock.sleep(10)
        queue = (await plant.call("GET", "/api/v1/queue", ann)).json()["items"]
        (waits,) = [one for one in queue if one["name"] == late]
        assert "the machine is drained since" in waits["sentence"] and "(new kernel)" in waits["sentence"]
        assert " by " not in waits["sentence"] and "undrain" not in waits["sentence"]
        ended = (await plant.call("POST", f"{url}/undrain", owner)).json()
        assert ended["drain"] is None and [one["name"] for one in ended["suspended"]] == [job]
        await plant.rest.clock.sleep(10)
        assert not (await plant.call("GET", f"{url}/drain", owner)).json()["suspended"]
        assert {one["name"] for one in (await plant.call("GET", url, owner)).json()["jobs"]} == {job, late}

    play(tmp_path, scene)


def test_the_machine_and_the_queue(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        bob = await plant.rest.add_tenant("bob")
        large: dict[str, Any] = {"config": {"num_nodes": 1, "gpu_per_node": 8}}
        secret = await create(plant, bob, "bob", **large)
        job = await create(plant, ann, **large)
        await plant.rest.clock.sleep(10)
        found = (await plant.call("GET", "/api/v1/queue", plant.rest.owner)).json()
        assert found["whole"] and {(one["namespace"], one["name"]) for one in found["items"]} == {
            ("ann", job),
            ("bob", secret),
        }
        assert all(one["sentence"] and one["uid"] and one["kind"] == "TrainJob" for one in found["items"])
        own = (await plant.call("GET", "/api/v1/queue", ann)).json()
        assert [one["name"] for one in own["items"]] == [job] and not own["whole"]
        assert secret not in str(own) and own["items"][0]["sentence"]
        (node,) = (await plant.call("GET", "/api/v1/nodes", plant.rest.owner)).json()["items"]
        assert {"name", "ready", "resources", "gpus"} <= set(node)
        one = (await plant.call("GET", f"/api/v1/nodes/{node['name']}", plant.rest.owner)).json()
        assert one["name"] == node["name"]
        assert (await plant.call("GET", "/api/v1/nodes/nothing", plant.rest.owner)).status == 404
        for token, nodes in ((plant.rest.owner, 1), (ann, None)):
            async with plant.listen(f"{STREAM}?topic=machine", token=token) as stream:
                event = await stream.next()
                assert event is not None and event.kind == "machine"
                told = event.data
                assert (None if told["nodes"] is None else len(told["nodes"])) == nodes
                assert len(told["queue"]["items"]) == (2 if nodes else 1)
                await create(plant, ann, **large)
                event = await stream.next()
                assert event is not None and len(event.data["queue"]["items"]) > len(told["queue"]["items"])
                last = event.id
            async with plant.listen(f"{STREAM}?topic=machine", token=token, last_id=last) as stream:
                await plant.rest.clock.sleep(5)
                assert b"machine\n" not in stream.body
            for name in (await plant.call("GET", "/api/v1/jobs", ann)).json()["items"]:
                if name["name"] != job:
                    await plant.call("DELETE", f"/api/v1/jobs/{name['name']}", ann)
            await plant.rest.clock.sleep(5)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "topic=",
        "topic=nothing",
        "topic=jobs:ann",
        "topic=log:ann",
        "topic=job:ANN/x",
        "topic=job:ann/x/y/z",
        "topic=job:ann/NoSuchJob/x",
        "topic=job:ann/..%2fx",
        "topic=log:ann/x~y",
        "&".join(f"topic=job:ann/x{number}" for number in range(MOST_TOPICS + 1)),
        "topic=jobs&last_event_id=x",
        "topic=jobs&last_event_id=jobs=1~jobs=1",
        "topic=jobs&last_event_id=%C3%A9=1",
    ],
)
def test_a_topic_or_an_id_that_is_none_is_refused(tmp_path: Path, query: str) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        answer = await plant.call("GET", f"{STREAM}?{query}", ann)
        assert answer.status == 422, answer.body
        assert {error["parameter"] for error in answer.json()["errors"]} <= {"topic", "Last-Event-ID", "kind"}

    play(tmp_path, scene)


@pytest.mark.parametrize("position", ["x", "a.z", "4b1b6ab4", "-1", "!!"])
@pytest.mark.parametrize("topic", ["jobs", "job:ann/{job}", "log:ann/{job}"])
def test_a_position_that_is_none_ends_its_topic(tmp_path: Path, topic: str, position: str) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        asked = topic.replace("{job}", job)
        async with plant.listen(f"{STREAM}?topic={asked}", token=ann, last_id=f"{asked}={position}") as stream:
            event = await stream.next()
            assert event is not None and (event.kind, event.data["status"]) == ("problem", 422)

    play(tmp_path, scene)


def test_what_a_job_uses_is_told_until_it_has_ended(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        topic = f"usage:ann/{job}"
        async with plant.listen(f"{STREAM}?topic={topic}", token=ann) as stream:
            moments = [await stream.next() for _ in range(3)]
            for event in moments:
                assert event is not None and (event.kind, event.data["topic"]) == ("usage", topic)
                ranks = [RankNow.model_validate(one) for one in event.data["now"]]
                assert [one.worker for one in ranks] == [0, 1]
            times = [event.data["at"] for event in moments if event is not None]
            assert times[2] - times[0] >= 4
            assert (await plant.call("DELETE", f"/api/v1/jobs/{job}", ann)).status == 200
            while (event := await stream.next()) is not None and event.kind == "usage":
                pass
            assert event is not None and event.kind == "end"
            assert await stream.next() is None
            last = event.id
        async with plant.listen(f"{STREAM}?topic={topic}", token=ann, last_id=last) as stream:
            assert await stream.started() == 204

    play(tmp_path, scene)


def test_what_a_job_uses_is_for_those_who_may_read_it(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        bob = await plant.rest.add_tenant("bob")
        for topic, status in ((f"usage:ann/{job}", 403), ("usage:bob/nothing", 404)):
            async with plant.listen(f"{STREAM}?topic={topic}", token=bob) as stream:
                event = await stream.next()
                assert event is not None and (event.kind, event.data["status"]) == ("problem", status)

    play(tmp_path, scene)
