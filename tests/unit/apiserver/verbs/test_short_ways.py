"""Frequent writes take a short way through the server; whatever way one takes, the result is the same."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trainmaster.api.decoding import FieldValidation, decode
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOBS, PODS
from trainmaster.api.status import Invalid, StatusError
from trainmaster.apiserver import stored
from trainmaster.apiserver.verbs import short_patch
from trainmaster.client.contract import PatchType
from trainmaster.client.events import build_event
from trainmaster.client.writes import Create, Patch
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "labels": {"x": "y"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
}


async def play(patches: list[tuple[Any, str]], *, tracked: bool) -> list[object]:
    """What the server holds, or says, after each patch."""
    seen: list[object] = []
    async with running_cluster() as cluster:
        await cluster.client.create(PODS, POD, "default")
        for body, subresource in patches:
            seen.append(await _step(cluster, body, subresource, tracked=tracked))
    return seen


async def _step(cluster: Cluster, body: Any, subresource: str, *, tracked: bool) -> object:
    if not tracked:
        applied = cluster.client.apply_atomically((Patch(PODS, "default", "a", body, subresource),), field_manager="m")
        if applied.refusal is not None:
            return applied.refusal.error.message
    else:
        try:
            await cluster.client.patch(PODS, "a", PatchType.MERGE, body, "default", subresource=subresource)
        except StatusError as error:
            return error.message
    record = cluster.store.get("pods", "default/a")
    assert record is not None
    assert cluster.view.find(PODS, "default", "a") == stored.parse(record.value)
    return record.value


PATCHES: list[tuple[Any, str]] = [
    ({"metadata": {"annotations": {"w": "1"}}, "spec": {"nodeName": "n"}}, ""),
    ({"spec": {"nodeName": "n"}}, ""),
    ({"spec": {"nodeName": "other"}}, ""),
    ({"spec": {"nodeName": "Not A Name"}}, ""),
    ({"metadata": {"annotations": {"w": None}}}, ""),
    ({"metadata": {"labels": {"-bad-": "1"}}}, ""),
    ({"metadata": {"labels": {"x": None}}}, ""),
    ({"metadata": {"annotations": {"w": 1}}}, ""),
    ({"metadata": {"uid": "another"}, "spec": {"nodeName": "n"}}, ""),
    ({"metadata": {"resourceVersion": "1"}}, ""),
    ({"status": {"phase": "Running", "podIP": "10.0.0.1"}}, "status"),
    ({"status": {"phase": "Running"}}, "status"),
    ({"status": {"phase": None, "nonsense": 1}}, "status"),
    ({"status": {"phase": 7}}, "status"),
    ({"status": {}, "metadata": {"annotations": {"by": "status"}}}, "status"),
    ({"status": {"phase": "Failed"}, "metadata": {"uid": "another"}}, "status"),
    ({"status": {"phase": "Failed"}, "metadata": {"resourceVersion": "1"}}, "status"),
    ([], "status"),
]


@pytest.mark.parametrize("tracked", [True, False], ids=["with managedFields", "by a controller"])
def test_both_ways_give_the_same_bytes_and_the_same_refusals(tracked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = run_virtual(play(PATCHES, tracked=tracked))
    monkeypatch.setattr(short_patch, "find_written", lambda *_: None)
    long = run_virtual(play(PATCHES, tracked=tracked))
    for patch, one, other in zip(PATCHES, short, long, strict=True):
        assert one == other, patch


def test_a_binding_and_a_status_do_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Object:
        raise AssertionError("decoded again")

    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(PODS, POD, "default")
            monkeypatch.setattr("trainmaster.apiserver.verbs.patch.decode_patched", refuse)
            writes = (
                Patch(PODS, "default", "a", {"spec": {"nodeName": "n"}}),
                Patch(PODS, "default", "a", {"status": {"phase": "Running"}}, "status"),
            )
            assert cluster.client.apply_atomically(writes, field_manager="m").refusal is None

    run_virtual(main())


def test_a_status_patch_of_a_job_is_still_validated() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(JOBS, JOB, "default")
            patch = {"status": {"active": -1}}
            with pytest.raises(Invalid, match="must be greater than or equal to 0"):
                await cluster.client.patch(JOBS, "a", PatchType.MERGE, patch, "default", subresource="status")
            write = Patch(JOBS, "default", "a", patch, "status")
            with pytest.raises(AssertionError, match="the status of Job a was to be valid"):
                cluster.client.apply_atomically((write,), field_manager="m")

    run_virtual(main())


def test_what_was_undone_is_not_seen_again() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
            bad = {**first, "metadata": {"name": "Not A Name", "namespace": "default"}}
            applied = cluster.client.apply_atomically(
                (Create(CONFIG_MAPS, {**first, "data": {"k": "undone"}}), Create(CONFIG_MAPS, bad)), field_manager="m"
            )
            assert applied.refusal is not None
            assert cluster.view.find(CONFIG_MAPS, "default", "a") is None
            await cluster.client.create(CONFIG_MAPS, {**first, "data": {"k": "kept"}}, "default")
            writes = (
                Patch(CONFIG_MAPS, "default", "a", {"data": {"k": "undone"}}),
                Create(CONFIG_MAPS, bad),
            )
            assert cluster.client.apply_atomically(writes, field_manager="m").refusal is not None
            found = cluster.view.find(CONFIG_MAPS, "default", "a")
            assert found is not None and found["data"] == {"k": "kept"}

    run_virtual(main())


def test_an_event_as_the_recorder_builds_it_is_what_decoding_leaves() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            kind = cluster.registry.catalogue.find(EVENTS)
            assert kind is not None
            now = cluster.clock.now()
            pod = await cluster.client.create(PODS, POD, "default")
            for warning, host in ((False, ""), (True, "here")):
                event = build_event(pod, "Reason", "text", now, component="c", host=host, warning=warning)
                copy = orjson.loads(orjson.dumps(event))
                assert decode(kind, copy, FieldValidation.STRICT).object == event

    run_virtual(main())


def test_pods_that_differ_in_their_host_names_are_each_checked() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            seen = []
            for number, changes in enumerate(({"hostname": "a-0"}, {"hostname": "A_1"}, {}, {"restartPolicy": "Some"})):
                pod = {
                    **POD,
                    "metadata": {**POD["metadata"], "name": f"a-{number}"},
                    "spec": {**POD["spec"], **changes},
                }
                applied = cluster.client.apply_atomically((Create(PODS, pod),), field_manager="m")
                seen.append("" if applied.refusal is None else applied.refusal.error.message)
            assert seen[0] == seen[2] == ""
            assert 'spec.hostname: Invalid value: "A_1"' in seen[1]
            assert 'spec.restartPolicy: Unsupported value: "Some"' in seen[3]

    run_virtual(main())


@pytest.mark.parametrize(
    ("changes", "text"), [({"hostname": "A_1"}, "Pod a was to be valid"), ({"color": "red"}, "was to need no decoding")]
)
def test_a_new_object_that_is_not_what_its_writer_promised_is_found(changes: Object, text: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            pod = {**POD, "spec": {**orjson.loads(orjson.dumps(POD["spec"])), **changes}}
            with pytest.raises(AssertionError, match=text):
                cluster.client.apply_atomically((Create(PODS, pod, proven=True),), field_manager="m")

    run_virtual(main())
