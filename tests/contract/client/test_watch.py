"""Watching: where it starts, what it delivers, how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client.objects import CONFIG_MAPS, PODS, make_config_map, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.meta import Object
from trainmaster.client.contract import ListOptions, PatchType, WatchEvent, WatchOptions

pytestmark = pytest.mark.contract

OURS = "suite=watch"


async def create(stage: Stage, name: str, **data: str) -> Object:
    obj = make_config_map(name, data or None, labels={"suite": "watch"})
    return await stage.client.create(CONFIG_MAPS, obj, stage.namespace)


async def revision(stage: Stage) -> str:
    return (await stage.client.list(CONFIG_MAPS, stage.namespace)).resource_version


async def collect(stage: Stage, count: int, **options: Any) -> list[WatchEvent]:
    """The first events of a watch."""
    found: list[WatchEvent] = []
    asked = WatchOptions(**{"label_selector": OURS, "timeout_seconds": 20, **options})
    async with stage.client.watch(CONFIG_MAPS, stage.namespace, asked) as watch:
        async for event in watch:
            found.append(event)
            if len(found) == count:
                break
    return found


def shown(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"].get("name", "")) for event in events]


@pytest.mark.parametrize("start", ["", "0"])
async def test_a_watch_from_nowhere_begins_with_the_current_state(stage: Stage, start: str) -> None:
    await create(stage, "a")
    await create(stage, "b")
    events = await collect(stage, 2, resource_version=start)
    assert sorted(shown(events)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_from_a_revision_delivers_what_came_after(stage: Stage) -> None:
    await create(stage, "before")
    start = await revision(stage)
    await create(stage, "a", k="1")
    await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"k": "2"}}, stage.namespace)
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    events = await collect(stage, 3, resource_version=start)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.object["data"] for event in events] == [{"k": "1"}, {"k": "2"}, {"k": "2"}]
    revisions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert revisions == sorted(set(revisions))


async def test_a_watch_delivers_what_happens_while_it_is_open(stage: Stage) -> None:
    start = await revision(stage)
    asked = WatchOptions(OURS, resource_version=start, timeout_seconds=20)
    async with stage.client.watch(CONFIG_MAPS, stage.namespace, asked) as watch:
        for name in ("a", "b", "c"):
            await create(stage, name)
            event = await anext(watch)
            assert (event.type, event.object["metadata"]["name"]) == ("ADDED", name)


async def test_events_carry_kind_and_api_version(stage: Stage) -> None:
    await create(stage, "a")
    [event] = await collect(stage, 1)
    assert (event.object["apiVersion"], event.object["kind"]) == ("v1", "ConfigMap")


async def test_a_watch_continues_where_another_ended(stage: Stage) -> None:
    await create(stage, "a")
    [first] = await collect(stage, 1)
    await create(stage, "b")
    [second] = await collect(stage, 1, resource_version=first.object["metadata"]["resourceVersion"])
    assert shown([second]) == [("ADDED", "b")]


async def test_an_object_that_begins_or_ceases_to_match_is_added_or_deleted(stage: Stage) -> None:
    start = await revision(stage)
    await stage.client.create(CONFIG_MAPS, make_config_map("a"), stage.namespace)
    label = {"metadata": {"labels": {"suite": "watch"}}}
    await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, label, stage.namespace)
    other = {"metadata": {"labels": {"suite": "other"}}}
    left = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, other, stage.namespace)
    events = await collect(stage, 2, resource_version=start)
    assert shown(events) == [("ADDED", "a"), ("DELETED", "a")]
    # The object as it was while it matched, under the revision of the change.
    assert events[1].object["metadata"]["labels"] == {"suite": "watch"}
    assert events[1].object["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_field_selector_watches_one_object(stage: Stage) -> None:
    start = await revision(stage)
    for name in ("a", "b"):
        await create(stage, name)
    [event] = await collect(stage, 1, resource_version=start, field_selector="metadata.name=b")
    assert shown([event]) == [("ADDED", "b")]


async def test_a_deletion_carries_the_last_state_and_a_new_revision(stage: Stage) -> None:
    made = await create(stage, "a", k="v")
    start = made["metadata"]["resourceVersion"]
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    [event] = await collect(stage, 1, resource_version=start)
    assert event.type == "DELETED"
    assert event.object["data"] == {"k": "v"}
    assert int(event.object["metadata"]["resourceVersion"]) > int(start)
    assert "deletionTimestamp" not in event.object["metadata"]


async def test_a_write_that_changes_nothing_makes_no_event(stage: Stage) -> None:
    start = (await create(stage, "a", k="v"))["metadata"]["resourceVersion"]
    same = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"k": "v"}}, stage.namespace)
    assert same["metadata"]["resourceVersion"] == start
    await create(stage, "b")
    [event] = await collect(stage, 1, resource_version=start)
    assert shown([event]) == [("ADDED", "b")]


async def test_a_watch_ends_at_its_time_limit(stage: Stage) -> None:
    events = await collect(stage, 2, timeout_seconds=1)
    assert events == []


async def test_initial_events_end_with_a_bookmark(stage: Stage) -> None:
    await create(stage, "a")
    events = await collect(stage, 2, send_initial_events=True, resource_version_match="NotOlderThan", bookmarks=True)
    assert shown(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    metadata = events[1].object["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(metadata["resourceVersion"]) >= int(events[0].object["metadata"]["resourceVersion"])
    assert (events[1].object["apiVersion"], events[1].object["kind"]) == ("v1", "ConfigMap")


async def test_a_watch_from_a_bookmark_misses_nothing_and_repeats_nothing(stage: Stage) -> None:
    await create(stage, "a")
    events = await collect(stage, 2, send_initial_events=True, resource_version_match="NotOlderThan", bookmarks=True)
    await create(stage, "b")
    [event] = await collect(stage, 1, resource_version=events[1].object["metadata"]["resourceVersion"])
    assert shown([event]) == [("ADDED", "b")]


async def test_without_initial_events_a_watch_from_nowhere_begins_now(stage: Stage) -> None:
    await create(stage, "a")
    events = await collect(
        stage, 1, send_initial_events=False, resource_version_match="NotOlderThan", timeout_seconds=1
    )
    assert events == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            WatchOptions(send_initial_events=True),
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            WatchOptions(resource_version_match="NotOlderThan"),
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ],
)
async def test_contradictory_questions_are_invalid(stage: Stage, options: WatchOptions, text: str) -> None:
    async def begin() -> None:
        async with stage.client.watch(CONFIG_MAPS, stage.namespace, options):
            pass

    assert await refusal(begin()) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {text}',
        "details": {
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": "FieldValueForbidden", "message": text, "field": "resourceVersionMatch"}],
        },
    }


async def test_list_then_watch_sees_every_change_once(stage: Stage) -> None:
    await create(stage, "a")
    listed = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(OURS))
    await create(stage, "b")
    asked = WatchOptions(OURS, resource_version=listed.resource_version, timeout_seconds=20)
    async with stage.client.watch(CONFIG_MAPS, stage.namespace, asked) as watch:
        await create(stage, "c")
        events = [await anext(watch), await anext(watch)]
    assert shown(events) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_of_metadata_delivers_the_metadata_of_every_change_and_nothing_else(stage: Stage) -> None:
    listed = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(metadata_only=True))
    made = await create(stage, "a", k="1")
    changed = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"k": "2"}}, stage.namespace)
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    events = await collect(stage, 3, resource_version=listed.resource_version, metadata_only=True)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.object["metadata"] for event in events[:2]] == [made["metadata"], changed["metadata"]]
    for event in events:
        assert {key: value for key, value in event.object.items() if key != "metadata"} == {
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
        }


async def test_a_watch_without_the_spec_delivers_all_the_rest(stage: Stage) -> None:
    pod = make_pod()
    odd = '},"spec":{"x":1},"status":{,"managedFields":['
    pod["metadata"]["annotations"] = {"odd": odd}
    await stage.client.create(PODS, pod, stage.namespace)
    found: list[Object] = []
    for without_spec in (False, True):
        asked = WatchOptions(timeout_seconds=20, gather_seconds=0.01, without_spec=without_spec)
        async with stage.client.watch(PODS, stage.namespace, asked) as watch:
            found.append((await anext(watch)).object)
    whole, rest = found
    assert whole["spec"] and whole["status"] and rest["metadata"]["annotations"] == {"odd": odd}
    for obj in found:
        obj.pop("spec", None)
        obj["metadata"].pop("managedFields", None)
    assert whole == rest
