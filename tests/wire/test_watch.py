"""Checklist E: watches as kubectl and plain HTTP clients see them."""

from __future__ import annotations

import json
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

from tests.support.clients import JSON, Raw, Target
from tests.support.kubectl import Kubectl
from tests.wire.scenario import matches, with_versions

pytestmark = pytest.mark.wire


def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def configmap(name: str, **data: str) -> JSON:
    return {"metadata": {"name": name, "labels": {"set": "w"}}, "data": data}


class Screen:
    """What a watching kubectl prints, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def has_line(self, within: float) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], within)[0])

    def shows(self, want: str) -> None:
        """The next line is this one; the time limit of the test ends a wait for a line that never comes."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert matches(want, line), f"{line!r} is not {want!r}"


@contextmanager
def watching(kubectl: Kubectl, line: str) -> Iterator[Screen]:
    with kubectl.start(line) as process:
        try:
            yield Screen(process)
        finally:
            process.terminate()


@with_versions("core")
def test_get_w_shows_changes_as_they_come(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    with watching(kubectl, "get cm -l set=w -w") as screen:
        screen.shows("NAME DATA AGE")
        screen.shows("a 1 <age>")
        raw.create(path, configmap("b", x="1"))
        screen.shows("b 1 <age>")
        raw.merge(f"{path}/a", {"data": {"y": "2"}})
        screen.shows("a 2 <age>")
        raw.delete(f"{path}/b")
        screen.shows("b 1 <age>")


@with_versions("full")
def test_get_w_of_one_object_shows_its_changes(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    with watching(kubectl, "get cm a -w") as screen:
        screen.shows("NAME DATA AGE")
        screen.shows("a 1 <age>")
        raw.create(path, configmap("b", x="1"))
        # kubectl swallows the first event of its watch, and that may be the first change.
        for number in count():
            raw.merge(f"{path}/a", {"data": {"y": str(number)}})
            if screen.has_line(within=0.2):
                break
        screen.shows("a 2 <age>")


@with_versions("full")
def test_get_w_of_a_custom_kind_shows_its_state(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f runtime.yaml -f trainjob.yaml")
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/trainjobs/tj1/status"
    condition = {"type": "Failed", "status": "True", "reason": "X", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    with watching(kubectl, "get trainjob -w") as screen:
        screen.shows("NAME STATE AGE <any>")
        screen.shows("tj1 <age> <any>")
        raw.merge(path, {"status": {"conditions": [condition]}})
        screen.shows("tj1 Failed <age> <any>")


@with_versions("full")
def test_output_watch_events_names_each_event(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    with watching(kubectl, "get cm -l set=w -w --output-watch-events") as screen:
        screen.shows("EVENT NAME DATA AGE")
        screen.shows("ADDED a 1 <age>")
        raw.merge(f"{path}/a", {"data": {"y": "2"}})
        screen.shows("MODIFIED a 2 <age>")
        raw.delete(f"{path}/a")
        screen.shows("DELETED a 2 <age>")


@with_versions("full")
def test_watch_only_leaves_out_what_is_there(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    with watching(kubectl, "get cm -l set=w --watch-only -o name") as screen:
        # Nothing is printed before the first event, so changes are made until the watch has seen one.
        for number in count():
            raw.create(path, configmap(f"b-{number}"))
            if screen.has_line(within=0.1):
                break
        screen.shows("configmap/b-<int>")


@with_versions("full")
def test_objects_enter_and_leave_a_selection(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    raw.create(path, {"metadata": {"name": "b"}})
    with watching(kubectl, "get cm -l set=w -w --output-watch-events") as screen:
        screen.shows("EVENT NAME DATA AGE")
        screen.shows("ADDED a 1 <age>")
        raw.merge(f"{path}/b", {"metadata": {"labels": {"set": "w"}}})
        screen.shows("ADDED b 0 <age>")
        raw.merge(f"{path}/a", {"metadata": {"labels": {"set": None}}})
        screen.shows("DELETED a 1 <age>")


@with_versions("full")
def test_a_watch_ends_cleanly_at_its_time_limit(kubectl: Kubectl, raw: Raw) -> None:
    path = configmaps(kubectl.namespace)
    raw.create(path, configmap("a", x="1"))
    selector = "labelSelector=set%3Dw"
    answer = kubectl.run(f"get --raw '{path}?watch=true&timeoutSeconds=1&{selector}'")
    assert answer.rc == 0, answer.err
    (event,) = [json.loads(line) for line in answer.out.splitlines()]
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


# ---- without kubectl ----------------------------------------------------------


def test_a_watch_from_a_revision_sees_exactly_what_came_after_it(raw: Raw, namespace: str, target: Target) -> None:
    path = configmaps(namespace)
    first = raw.create(path, configmap("a", x="1"))
    raw.merge(f"{path}/a", {"data": {"x": "2"}})
    raw.create(path, configmap("b"))
    raw.delete(f"{path}/a")
    watcher = target.raw()
    revision = first["metadata"]["resourceVersion"]
    with watcher.watch(f"{path}?watch=true&resourceVersion={revision}&labelSelector=set%3Dw") as events:
        seen = [next(events) for _ in range(3)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert revisions == sorted(set(revisions)) and revisions[0] > int(revision)


def test_initial_events_end_with_a_marked_bookmark(raw: Raw, namespace: str) -> None:
    path = configmaps(namespace)
    raw.create(path, configmap("a"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with raw.watch(f"{path}?{query}&labelSelector=set%3Dw") as events:
        added, bookmark = next(events), next(events)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(added["object"]["metadata"]["resourceVersion"])


def test_a_hundred_watchers_all_see_a_change(raw: Raw, namespace: str, target: Target) -> None:
    path = configmaps(namespace)
    raw.create(path, configmap("a"))
    with ExitStack() as stack:
        streams = []
        for _ in range(100):
            watcher = target.raw()
            stack.callback(watcher.close)
            streams.append(stack.enter_context(watcher.watch(f"{path}?watch=true&labelSelector=set%3Dw")))
        assert {next(stream)["object"]["metadata"]["name"] for stream in streams} == {"a"}
        raw.create(path, configmap("b"))
        assert {next(stream)["object"]["metadata"]["name"] for stream in streams} == {"b"}


def test_a_reader_that_stalls_holds_up_nobody_else(raw: Raw, namespace: str, target: Target) -> None:
    path = configmaps(namespace)
    with ExitStack() as stack:
        stalled, lively = target.raw(), target.raw()
        stack.callback(stalled.close)
        stack.callback(lively.close)
        stack.enter_context(stalled.watch(f"{path}?watch=true&labelSelector=set%3Dw"))
        events = stack.enter_context(lively.watch(f"{path}?watch=true&labelSelector=set%3Dw"))
        # Far more than the buffers of a socket hold, and nobody reads it on one of the two.
        for number in range(100):
            raw.create(path, configmap(f"big-{number}", text="x" * 200_000))
            assert next(events)["object"]["metadata"]["name"] == f"big-{number}"


def open_watches(raw: Raw) -> int:
    found = re.search(r"^apiserver_longrunning_requests (\d+)", raw.get("/metrics"), re.MULTILINE)
    assert found
    return int(found.group(1))


def test_clients_that_vanish_leave_no_watch_behind(raw: Raw, namespace: str, target: Target) -> None:
    path = f"{configmaps(namespace)}?watch=true"
    with ExitStack() as stack:
        for _ in range(20):
            watcher = target.raw()
            stack.callback(watcher.close)
            stack.enter_context(watcher.watch(path))
        assert open_watches(raw) >= 20
    end = time.monotonic() + 20
    while open_watches(raw) > 0:
        assert time.monotonic() < end, "watches of closed connections are still open"
        time.sleep(0.02)
