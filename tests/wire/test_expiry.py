"""Checklist E and H: what clients do when the history they ask for is gone (410). This server keeps little of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from tests.support.clients import Raw, Refused, Target, connect
from tests.support.kubectl import Kubectl
from tests.wire.scenario import with_versions
from tests.wire.targets import start_ours

pytestmark = pytest.mark.wire

KEPT = 16


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    environ = {"TRAINMASTER_STORAGE_WINDOW_EVENTS": str(KEPT)}
    with start_ours(tmp_path_factory.mktemp("forgetful"), environ=environ) as target:
        yield target


@pytest.fixture
def target(forgetful: Target) -> Target:
    return forgetful


@pytest.fixture
def first_revision(raw: Raw, namespace: str) -> str:
    """A revision whose successors have been forgotten."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = raw.create(path, {"metadata": {"name": "c", "labels": {"set": "w"}}})
    for number in range(3 * KEPT):
        raw.merge(f"{path}/c", {"data": {"n": str(number)}})
    return str(first["metadata"]["resourceVersion"])


@with_versions("full")
def test_kubectl_prints_that_the_revision_is_too_old(kubectl: Kubectl, first_revision: str) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    answer = kubectl.run(f"get --raw '{path}?watch=true&resourceVersion={first_revision}&timeoutSeconds=5'")
    assert f"too old resource version: {first_revision}" in answer.out + answer.err


def test_a_python_watch_with_a_time_limit_raises_410(target: Target, namespace: str, first_revision: str) -> None:
    with connect(target) as api, pytest.raises(ApiException) as expired:
        core = client.CoreV1Api(api)
        list(
            watch.Watch().stream(
                core.list_namespaced_config_map, namespace, resource_version=first_revision, timeout_seconds=5
            )
        )
    assert expired.value.status == 410


def test_a_python_watch_goes_on_after_a_new_list(target: Target, namespace: str, first_revision: str) -> None:
    with connect(target) as api:
        core = client.CoreV1Api(api)
        listed = core.list_namespaced_config_map(namespace)
        core.patch_namespaced_config_map("c", namespace, {"data": {"n": "last"}})
        stream = watch.Watch()
        event = next(
            iter(
                stream.stream(
                    core.list_namespaced_config_map,
                    namespace,
                    resource_version=listed.metadata.resource_version,
                    timeout_seconds=5,
                )
            )
        )
        stream.stop()
    assert (event["type"], event["object"].data["n"]) == ("MODIFIED", "last")


def test_a_quiet_kind_is_not_forgotten_because_another_is_busy(raw: Raw, namespace: str, target: Target) -> None:
    quiet = f"/api/v1/namespaces/{namespace}/secrets"
    first = raw.create(quiet, {"metadata": {"name": "s"}})
    busy = f"/api/v1/namespaces/{namespace}/configmaps"
    raw.create(busy, {"metadata": {"name": "c"}})
    for number in range(3 * KEPT):
        raw.merge(f"{busy}/c", {"data": {"n": str(number)}})
    raw.merge(f"{quiet}/s", {"metadata": {"labels": {"a": "b"}}})
    watcher = target.raw()
    revision = first["metadata"]["resourceVersion"]
    with watcher.watch(f"{quiet}?watch=true&resourceVersion={revision}") as events:
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("MODIFIED", {"a": "b"})


def test_a_continue_token_of_forgotten_history_expires(raw: Raw, namespace: str, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(4):
        raw.create(path, {"metadata": {"name": f"c{number}"}})
    token = raw.get(f"{path}?limit=2")["metadata"]["continue"]
    for number in range(3 * KEPT):
        raw.merge(f"{path}/c0", {"data": {"n": str(number)}})
    try:
        names = [item["metadata"]["name"] for item in raw.get(f"{path}?limit=2&continue={token}")["items"]]
    except Refused as refused:
        assert (refused.code, refused.body["reason"]) == (410, "Expired")
    else:
        assert names == ["c2", "c3"]
