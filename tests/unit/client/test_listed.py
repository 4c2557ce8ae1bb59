"""Lists that are fetched once: everything that was asked for, over few connections."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from trainmaster.api.meta import GVR
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, NODES, PODS, SECRETS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, ObjectList
from trainmaster.client.listed import fetch

pytestmark = pytest.mark.unit


class _Server:
    def __init__(self, refusals: dict[GVR, int]) -> None:
        self._refusals = refusals
        self._busy = 0
        self.busiest = 0
        self.asked: list[tuple[GVR, str]] = []

    async def list(self, gvr: GVR, namespace: str = "") -> ObjectList:
        self.asked.append((gvr, namespace))
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        await asyncio.sleep(0)
        self._busy -= 1
        if gvr in self._refusals:
            raise StatusError(self._refusals[gvr], "Refused", "no")
        return ObjectList([{"metadata": {"name": gvr.plural, "namespace": namespace}}], "1")


WANTED = {PODS: "", JOB_SETS: "", JOBS: "", NODES: "", CONFIG_MAPS: "team", SECRETS: "team", TRAIN_JOBS: ""}


def test_all_kinds_are_listed_once_over_a_few_connections() -> None:
    server = _Server({NODES: 403, SECRETS: 404})
    view = asyncio.run(fetch(cast(Client, server), WANTED))
    assert sorted(server.asked) == sorted(WANTED.items())
    assert server.busiest <= 3
    assert view.missing == {NODES, SECRETS}
    assert view.find(CONFIG_MAPS, "team", "configmaps") is not None
    assert [obj["metadata"]["name"] for obj in view.list(TRAIN_JOBS)] == ["trainjobs"]


def test_nothing_more_is_listed_once_a_needed_kind_is_missing() -> None:
    server = _Server({PODS: 403})
    view = asyncio.run(fetch(cast(Client, server), WANTED, needed=(PODS,)))
    assert view.missing == {PODS}
    assert len(server.asked) < len(WANTED)


def test_a_server_that_fails_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(StatusError):
        asyncio.run(fetch(cast(Client, _Server({JOBS: 500})), WANTED))
