"""Retention with a history in place: the record first, then the delete; and why a job that is due is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, TRAIN_JOBS
from trainmaster.client.contract import WatchOptions
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.retention import ARCHIVE
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Timeline
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


@dataclass
class Shelf:
    """A ledger whose disk is full for the first few attempts."""

    failures: int = 0
    records: set[str] = field(default_factory=set)
    troubles: dict[str, str] = field(default_factory=dict)
    attempts: int = 0

    def is_archived(self, uid: str) -> bool:
        return uid in self.records

    def find_trouble(self, uid: str) -> str | None:
        return self.troubles.get(uid)

    async def archive(self, trainjob: Object) -> bool:
        uid = trainjob["metadata"]["uid"]
        self.attempts += 1
        if self.attempts <= self.failures:
            news = uid not in self.troubles
            self.troubles[uid] = "no space left on the disk"
            return news
        self.records.add(uid)
        self.troubles.pop(uid, None)
        return True


def live_and_go(shelf: Shelf, policy: dict[str, str] | None = None, **spec: Any) -> tuple[list[Object], list[str]]:
    """(what was seen of the TrainJob until it was gone, reasons of events)."""

    async def main() -> tuple[list[Object], list[str]]:
        context = LifecycleContext(ledger=shelf)
        controllers = (retention.build_controller(context), limits.build_controller(context))
        seen: list[Object] = []
        effects = {ARCHIVE: shelf.archive}
        async with running_plant(ScriptedNode(), lifecycle=controllers, effects=effects) as plant:
            if policy is not None:
                meta = {"name": "trainmaster-policy", "namespace": "kubeflow-system"}
                config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": policy}
                await plant.apply((CONFIG_MAPS, config))
            await plant.apply((TRAIN_JOBS, make_trainjob(**spec)))
            async with plant.client.watch(TRAIN_JOBS, "default", WatchOptions()) as events:
                async for event in events:
                    seen.append(event.object)
                    if event.type == "DELETED":
                        break
            await asyncio.sleep(1)
            return seen, [event["reason"] for event in await plant.list_all(EVENTS)]

    return run_virtual(main(), limit=86_400)


def test_the_record_is_written_when_the_job_ends_and_long_before_it_goes() -> None:
    shelf = Shelf()
    seen, _ = live_and_go(shelf, ttlSecondsAfterFinished=500)
    assert shelf.attempts == 1
    assert shelf.records == {seen[0]["metadata"]["uid"]}
    assert is_finished(seen[-1])


def test_a_job_whose_record_cannot_be_written_is_kept_and_says_why_until_it_can() -> None:
    shelf = Shelf(failures=4)
    seen, reasons = live_and_go(shelf, ttlSecondsAfterFinished=0)
    texts = [((job.get("status") or {}).get("retention") or {}).get("message", "") for job in seen]
    assert any(text.endswith("could not be written: no space left on the disk") for text in texts)
    assert reasons.count("NotDeleted") == 1
    assert shelf.attempts == 5


def test_a_job_beyond_the_limits_goes_once_its_record_is_written_though_nothing_else_changes() -> None:
    shelf = Shelf(failures=1)
    seen, _ = live_and_go(shelf, {"successfulJobsHistoryLimit": "0"})
    assert shelf.records == {seen[0]["metadata"]["uid"]}


class Shown:
    """A view of one object."""

    def __init__(self, obj: Object) -> None:
        self._obj = obj

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self._obj if gvr == TRAIN_JOBS else None

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return [self._obj] if gvr == TRAIN_JOBS else []

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return []


def test_a_ttl_that_is_set_after_the_clock_was_set_counts_from_the_true_end() -> None:
    clock = VirtualClock()
    trainjob = make_trainjob()
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(clock.now())}
    trainjob["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    trainjob["status"] = {"conditions": [ended]}
    timeline, request = Timeline[Request](clock), Request("default", trainjob["metadata"]["name"])

    def look() -> Plan:
        now = timeline.begin_pass(request)
        plan = retention.reconcile(LifecycleContext(), Shown(trainjob), request, now)
        timeline.end_pass(request, now)
        return plan

    assert look().requeue_after is None
    clock.step_wall(3600)
    trainjob["spec"]["ttlSecondsAfterFinished"] = 60
    plan = look()
    assert plan.writes == ()
    assert plan.requeue_after == 60
