"""The event recorder: merged, truncated, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.client.fake import FakeClient, make_object
from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.client.events import BufferedEventRecorder
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def run(client: FakeClient, check: Callable[[BufferedEventRecorder], Awaitable[None]], *, most: int = 1000) -> None:
    async def body() -> None:
        recorder = BufferedEventRecorder(client, clock=VirtualClock(), component="tester", host="box", most=most)
        async with recorder:
            await check(recorder)

    run_virtual(body())


def test_an_event_has_every_field_that_clients_need() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record(make_object("p", 7), "Started", "it runs", warning=True)
        await recorder.flush()

    run(client, check)
    (event,) = client.created
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "a", "uid": "uid-p", "resourceVersion": "7",
    }  # fmt: skip
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Warning", "Started", "it runs", 1)
    assert event["source"] == {"component": "tester", "host": "box"}


def test_repeats_raise_the_count_whether_they_wait_together_or_come_later() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        for _ in range(3):
            recorder.record(make_object("p", 7), "Failed", "again")
        await recorder.flush()
        recorder.record(make_object("p", 8), "Failed", "again")
        await recorder.flush()

    run(client, check)
    (event,) = client.stored.values()
    assert event["count"] == 4


def test_different_texts_are_different_events() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record(make_object("p", 7), "Failed", "one")
        recorder.record(make_object("p", 7), "Failed", "two")
        await recorder.flush()

    run(client, check)
    assert len(client.created) == 2


def test_long_messages_are_cut_to_upstreams_limit() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record(make_object("p", 7), "Failed", "x" * 5000)
        await recorder.flush()

    run(client, check)
    assert len(client.created[0]["message"]) == 1024


def test_events_about_cluster_scoped_objects_live_in_default() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record({"kind": "Node", "metadata": {"name": "n"}}, "Ready", "up")
        await recorder.flush()

    run(client, check)
    assert client.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in client.created[0]["involvedObject"]


def test_a_full_queue_drops_the_oldest_and_says_how_many() -> None:
    client = FakeClient()

    async def check(recorder: BufferedEventRecorder) -> None:
        for number in range(5):
            recorder.record(make_object("p", 7), "R", str(number))
        assert recorder.dropped == 3
        await recorder.flush()

    run(client, check, most=2)
    assert [event["message"] for event in client.created] == ["3", "4"]


def test_a_server_that_refuses_events_stops_nothing() -> None:
    client = FakeClient()
    client.create_error = status.unavailable("down")

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record(make_object("p", 7), "R", "lost")
        await recorder.flush()
        client.create_error = None
        recorder.record(make_object("p", 7), "R", "kept")
        await recorder.flush()

    run(client, check)
    assert [event["message"] for event in client.created] == ["kept"]


@pytest.mark.parametrize("code", [409, 429, 500, 503])
def test_an_event_that_a_server_could_not_take_at_once_is_stored_a_moment_later(code: int) -> None:
    client = FakeClient()
    client.create_error = StatusError(code, "", "not now")

    async def check(recorder: BufferedEventRecorder) -> None:
        recorder.record(make_object("p", 7), "R", "kept")
        await asyncio.sleep(0.5)
        client.create_error = None
        await recorder.flush()

    run(client, check)
    assert [event["message"] for event in client.created] == ["kept"]


def test_a_server_that_is_away_for_long_costs_an_event_four_attempts() -> None:
    client = FakeClient()
    client.create_error = status.unavailable("down")
    attempts = 0

    async def check(recorder: BufferedEventRecorder) -> None:
        nonlocal attempts
        recorder.record(make_object("p", 7), "R", "lost")
        await recorder.flush()
        attempts = client.create_calls

    run(client, check)
    assert attempts == 4 and client.created == []
