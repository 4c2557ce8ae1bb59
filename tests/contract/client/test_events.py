"""Events: one stored object, two APIs."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import EVENTS, NEW_EVENTS
from tests.contract.client.stage import Stage
from trainmaster.api.meta import Object
from trainmaster.client.contract import ListOptions, WatchOptions

pytestmark = pytest.mark.contract


def make_event(stage: Stage, name: str = "e") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": stage.namespace},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:01Z",
        "source": {"component": "suite"},
    }


async def test_a_core_event_is_read_through_the_newer_api(stage: Stage) -> None:
    await stage.client.create(EVENTS, make_event(stage), stage.namespace)
    new = await stage.client.get(NEW_EVENTS, "e", stage.namespace)
    assert (new["apiVersion"], new["kind"]) == ("events.k8s.io/v1", "Event")
    assert new["regarding"] == {"kind": "Pod", "name": "p", "namespace": stage.namespace}
    assert new["note"] == "it runs"
    assert new["deprecatedCount"] == 2
    assert new["deprecatedFirstTimestamp"] == "2026-01-01T00:00:00Z"
    assert new["deprecatedLastTimestamp"] == "2026-01-01T00:00:01Z"
    assert new["deprecatedSource"] == {"component": "suite"}


async def test_a_newer_event_is_read_through_the_core_api(stage: Stage) -> None:
    given = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "n"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": stage.namespace},
        "reason": "Started",
        "note": "it runs",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/suite",
        "reportingInstance": "suite-1",
        "action": "Start",
    }
    await stage.client.create(NEW_EVENTS, given, stage.namespace)
    core = await stage.client.get(EVENTS, "n", stage.namespace)
    assert (core["apiVersion"], core["kind"]) == ("v1", "Event")
    assert core["involvedObject"] == {"kind": "Pod", "name": "p", "namespace": stage.namespace}
    assert core["message"] == "it runs"
    assert core["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert (core["reportingComponent"], core["reportingInstance"]) == ("example.com/suite", "suite-1")


async def test_events_are_selected_by_what_they_are_about(stage: Stage) -> None:
    await stage.client.create(EVENTS, make_event(stage, "e"), stage.namespace)
    other = make_event(stage, "o")
    other["involvedObject"]["name"] = "q"
    await stage.client.create(EVENTS, other, stage.namespace)
    for gvr, field in ((EVENTS, "involvedObject"), (NEW_EVENTS, "regarding")):
        options = ListOptions(field_selector=f"{field}.name=p,{field}.kind=Pod,{field}.uid=")
        found = await stage.client.list(gvr, stage.namespace, options)
        assert [item["metadata"]["name"] for item in found.items] == ["e"], gvr


async def test_a_watch_of_the_newer_api_shows_core_events(stage: Stage) -> None:
    start = (await stage.client.list(NEW_EVENTS, stage.namespace)).resource_version
    await stage.client.create(EVENTS, make_event(stage), stage.namespace)
    asked = WatchOptions(resource_version=start, timeout_seconds=20)
    async with stage.client.watch(NEW_EVENTS, stage.namespace, asked) as watch:
        event = await anext(watch)
    assert event.type == "ADDED"
    assert event.object["apiVersion"] == "events.k8s.io/v1"
    assert event.object["note"] == "it runs"
