"""Retention with a history in place: the record first, then the delete; and why a job that is due is still there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS, TRAIN_JOBS
from trainmaster.client.contract import WatchOptions
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.contract import Context
from trainmaster.controllers.lifecycle.retention import ARCHIVE
from trainmaster.testing.virtual import run_virtual

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


def live_and_go(shelf: Shelf, **spec: Any) -> tuple[list[Object], list[str]]:
    """(what was seen of the TrainJob until it was gone, reasons of events)."""

    async def main() -> tuple[list[Object], list[str]]:
        context = Context(ledger=shelf)
        controllers = (retention.build_controller(context), limits.build_controller(context))
        seen: list[Object] = []
        effects = {ARCHIVE: shelf.archive}
        async with running_plant(ScriptedNode(), lifecycle=controllers, effects=effects) as plant:
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
