"""Live logs and events of /api/v1 in virtual time: reconnects, restarts, slow readers, readers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.flow.plant import ScriptedNode
from tests.flow.test_rest_jobs import create, wait_for
from tests.support.rest_plant import Listener, RestPlant, running_rest_plant
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import PYTORCH, TENSORFLOW
from trainmaster.client.contract import PatchType
from trainmaster.rest.models.streams import EndEvent, JobEvent, LogEvent, MarkEvent, StateEvent
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.live import job_events, log_cursor
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow
FORMS: dict[str, type[BaseModel]] = {
    "log": LogEvent,
    "mark": MarkEvent,
    "end": EndEvent,
    "state": StateEvent,
    "event": JobEvent,
}


def play(tmp_path: Path, scene: Callable[[RestPlant, str], Awaitable[None]], node: ScriptedNode | None = None) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path, node) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"))

    run_virtual(main(), limit=86_400)


def test_lines_of_all_workers_come_as_they_are_printed(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        plant.papers.print(pods[0], "before")
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann) as stream:
            assert await stream.take_lines(1) == ["before"]
            assert stream.headers["content-type"].startswith("text/event-stream")
            plant.papers.print(pods[1], "after")
            event = await stream.next()
            assert event is not None
            (line,) = event.data["lines"]
            assert (line["worker"], line["attempt"], line["text"]) == (1, 0, "after")
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream?worker=1", token=ann) as stream:
            assert await stream.take_lines(1) == ["after"]

    play(tmp_path, scene)


def test_a_client_that_comes_again_gets_nothing_twice_and_misses_nothing(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pods = await plant.find_pods("ann", job, 2)
        url, last, seen = f"/api/v1/jobs/{job}/logs/stream", "", list[str]()
        want = []
        for turn in range(6):
            for number, pod in enumerate(pods):
                want += [f"{turn} {number} {step}" for step in range(3)]
                plant.papers.print(pod, *want[-3:])
            if turn == 3:
                # Some lines come while nobody listens.
                continue
            async with plant.listen(url, token=ann, last_id=last) as stream:
                seen += await stream.take_lines(len(want) - len(seen))
                last = stream.last_id
        assert sorted(seen) == sorted(want)

    play(tmp_path, scene)


def test_what_was_read_ahead_and_not_handed_out_comes_after_a_reconnect(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        url, seen, last = f"/api/v1/jobs/{job}/logs/stream", list[str](), ""
        want = [f"line {number}" for number in range(3000)]
        plant.papers.print(pod, *want)
        while len(seen) < len(want):
            # One event of many is taken, and the rest is on its way when the client goes.
            async with plant.listen(url, token=ann, last_id=last) as stream:
                seen += await stream.take_lines(1)
                last = stream.last_id
        assert seen == want

    play(tmp_path, scene)


def test_lines_of_the_same_moment_are_told_apart(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        moment = "2026-01-01T00:00:00.500000000Z"
        plant.papers.lines[pod] = [(moment, "a"), (moment, "b")]
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann) as stream:
            assert await stream.take_lines(2) == ["a", "b"]
        plant.papers.lines[pod] += [(moment, "c")]
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann, last_id=stream.last_id) as again:
            assert await again.take_lines(1) == ["c"]

    play(tmp_path, scene)


def test_a_stream_goes_on_through_a_restart_of_the_gang_and_ends_with_the_job(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        first = await plant.find_pods("ann", job, 2)
        plant.papers.print(first[0], "first attempt")
        url = f"/api/v1/jobs/{job}/logs/stream"
        async with plant.listen(url, token=ann) as stream:
            assert await stream.take_lines(1) == ["first attempt"]
            for pod in first:
                plant.papers.end(pod)
            assert (await plant.call("POST", f"/api/v1/jobs/{job}/restart", ann, {})).status == 200
            await plant.rest.clock.sleep(5)
            second = await plant.find_pods("ann", job, 2)
            assert not set(first) & set(second)
            plant.papers.print(second[1], "second attempt")
            kinds = []
            while (event := await stream.next()) is not None:
                kinds.append((event.kind, event.data.get("kind")))
                FORMS[event.kind].model_validate(event.data)
                if event.kind == "log":
                    break
            assert ("mark", "attempt") in kinds
            last = stream.last_id
        async with plant.listen(url, token=ann, last_id=last) as again:
            plant.papers.print(second[0], "third line")
            assert await again.take_lines(1) == ["third line"]
            for pod in second:
                plant.papers.end(pod)
            assert (await plant.call("DELETE", f"/api/v1/jobs/{job}", ann)).status == 200
            event = None
            while (found := await again.next()) is not None:
                event = found
            assert event is not None
            assert (event.kind, event.data) == ("end", {"state": "Deleted"})
        # An EventSource comes again after every end; 204 tells it to stop, and 404 does where nothing was kept.
        assert (await plant.call("GET", url, ann, headers=[("Last-Event-ID", event.id)])).status in (204, 404)

    play(tmp_path, scene)


def test_the_end_of_a_finished_job_is_not_told_twice(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        for pod in await plant.find_pods("ann", job, 2):
            plant.papers.print(pod, "done")
            plant.papers.end(pod)
        await wait_for(plant, ann, job, "Complete")
        for path in ("logs", "events"):
            async with plant.listen(f"/api/v1/jobs/{job}/{path}/stream", token=ann) as stream:
                event = None
                while (found := await stream.next()) is not None:
                    event = found
                    FORMS[found.kind].model_validate(found.data)
                assert event is not None
                assert (event.kind, event.data) == ("end", {"state": "Complete"})
            answer = await plant.call(
                "GET", f"/api/v1/jobs/{job}/{path}/stream", ann, headers=[("Last-Event-ID", event.id)]
            )
            assert (answer.status, answer.body) == (204, b"")

    play(tmp_path, scene, ScriptedNode())


def test_events_and_states_come_once_each(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        other = await create(plant, ann)
        job = await create(plant, ann)
        await wait_for(plant, ann, job, "Running")
        await wait_for(plant, ann, other, "Running")
        url = f"/api/v1/jobs/{job}/events/stream"
        seen: list[tuple[str, ...]] = []

        async def take_until(stream: Listener, wanted: Callable[[Any], bool]) -> None:
            while (event := await stream.next()) is not None:
                FORMS[event.kind].model_validate(event.data)
                if event.kind == "event":
                    assert job in event.data["about"]
                    seen.append(tuple(map(str, event.data.values())))
                if wanted(event):
                    return

        async with plant.listen(url, token=ann) as stream:
            await take_until(stream, lambda event: event.kind == "state")
        assert (await plant.call("POST", f"/api/v1/jobs/{job}/suspend", ann)).status == 200
        await plant.rest.clock.sleep(60)
        async with plant.listen(url, token=ann, last_id=stream.last_id) as stream:
            await take_until(stream, lambda event: event.kind == "state" and event.data["state"] == "Suspended")
            assert (await plant.call("POST", f"/api/v1/jobs/{job}/resume", ann)).status == 200
            await take_until(stream, lambda event: event.kind == "state" and event.data["state"] == "Running")
        assert len(seen) == len(set(seen)) > 0

    play(tmp_path, scene)


def test_events_of_a_job_of_another_kind_with_the_same_name_do_not_come(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        for framework, role in ((PYTORCH, "Master"), (TENSORFLOW, "Chief")):
            containers = [{"name": framework.container, "image": "python", "command": ["true"]}]
            replica = {"replicas": 1, "template": {"spec": {"containers": containers}}}
            head = {"apiVersion": "kubeflow.org/v1", "kind": framework.kind, "metadata": {"name": "a"}}
            job = {**head, "spec": {framework.replicas_field: {role: replica}}}
            await plant.rest.client.create(framework.gvr, job, "ann")
        await plant.rest.clock.sleep(60)
        seen = set()
        async with plant.listen("/api/v1/jobs/a/events/stream?kind=PyTorchJob", token=ann) as stream:
            while (event := await stream.next()) is not None:
                seen.add(event.data.get("about"))
        assert {"PyTorchJob/a", "Pod/a-master-0"} <= seen and "Pod/a-chief-0" not in seen

    play(tmp_path, scene, ScriptedNode())


def test_a_slow_reader_holds_up_its_own_stream_only_and_little_memory(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        many = [f"line {number}" for number in range(10_000)]
        plant.papers.print(pod, *many)
        url = f"/api/v1/jobs/{job}/logs/stream"
        async with plant.listen(url, token=ann, blocked=True) as slow, plant.listen(url, token=ann) as quick:
            assert await quick.take_lines(len(many)) == many
            await plant.rest.clock.sleep(20)
            assert slow.body == b""
            await slow.unblock()
            assert await slow.take_lines(len(many)) == many

    play(tmp_path, scene)


def test_a_reader_that_takes_nothing_for_a_minute_is_cut_off(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann) as stream:
            plant.papers.print(pod, "one")
            assert await stream.take_lines(1) == ["one"]
            stream.blocked = True
            plant.papers.print(pod, "two")
            await plant.rest.clock.sleep(90)
            assert plant.streams.count == 0
            assert plant.papers.readers == 0

    play(tmp_path, scene)


def test_who_leaves_in_the_middle_frees_everything(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        pod, _ = await plant.find_pods("ann", job, 2)
        before = len(asyncio.all_tasks())
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann) as stream:
            plant.papers.print(pod, "one")
            await stream.take_lines(1)
            assert plant.streams.count == 1
        async with plant.listen(f"/api/v1/jobs/{job}/events/stream", token=ann) as stream:
            await stream.next()
        await asyncio.sleep(0)
        assert (plant.streams.count, plant.papers.readers, len(asyncio.all_tasks())) == (0, 0, before)

    play(tmp_path, scene)


def test_a_revoked_token_ends_its_streams(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        for path in ("logs", "events"):
            token = ann
            async with plant.listen(f"/api/v1/jobs/{job}/{path}/stream", token=token) as stream:
                await stream.started()
                rotated = await plant.call("POST", "/api/v1/tenants/ann/rotate", plant.rest.owner, {})
                ann = rotated.json()["token"]
                event = await stream.next()
                while event is not None and event.kind != "problem":
                    event = await stream.next()
                assert event is not None
                assert event.data["status"] == 401
                assert await stream.next() is None

    play(tmp_path, scene)


def test_heartbeats_come_while_nothing_happens_and_streams_end_with_the_server(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        async with plant.listen(f"/api/v1/jobs/{job}/logs/stream", token=ann) as stream:
            await plant.rest.clock.sleep(100)
            assert stream.body.count(b":\n\n") >= 5
            plant.rest.app.stop()
            assert await stream.next() is None

    play(tmp_path, scene)


def test_nothing_streamed_leaves_before_it_is_durable(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await wait_for(plant, ann, job, "Running")
        store, gate = plant.rest.api.store, asyncio.Event()
        real, asked = store.durable, list[int]()

        async def durable(revision: int) -> None:
            asked.append(revision)
            await gate.wait()
            await real(revision)

        async with plant.listen(f"/api/v1/jobs/{job}/events/stream", token=ann) as stream:
            while (event := await stream.next()) is not None and event.kind != "state":
                pass
            await plant.rest.clock.sleep(5)
            stream.body = b""
            store.durable = durable  # type: ignore[method-assign]
            kube = plant.rest.client
            await kube.patch(TRAIN_JOBS, job, PatchType.MERGE, {"spec": {"suspend": True}}, "ann")
            await plant.rest.clock.sleep(5)
            assert asked
            assert b"Suspended" not in stream.body
            gate.set()
            while (event := await stream.next()) is not None and event.kind != "state":
                pass
            assert event is not None
            assert event.data["state"] == "Suspended"

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "text", ["x", "AAAA", "eJwDAAAAAAE", "a" * 40_000, "1.2.3.4", "é", "..", "u.9999999999999999999999.!"]
)
def test_an_id_that_is_none_of_ours_is_refused(text: str) -> None:
    for parse in (log_cursor.parse_cursor, job_events.parse_cursor):
        with pytest.raises(Problem) as error:
            parse(text)
        assert error.value.status == 422


def test_an_id_of_a_job_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        job = await create(plant, ann)
        await plant.find_pods("ann", job, 2)
        last = log_cursor.LogCursor("another-uid", 0).dump()
        answer = await plant.call("GET", f"/api/v1/jobs/{job}/logs/stream?last_event_id={last}", ann)
        assert (answer.status, answer.json()["type"].rpartition(":")[2]) == (410, "gone")
        answer = await plant.call("GET", f"/api/v1/jobs/{job}/logs/stream?worker=2", ann)
        assert (answer.status, answer.json()["errors"][0]["parameter"]) == (422, "worker")

    play(tmp_path, scene)
