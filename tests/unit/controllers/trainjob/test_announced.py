"""Secrets that may be created and not read: made once, never taken from somebody else, whatever is interrupted."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.unit.controllers.trainjob.stage import CLUSTER, Stage, make_job, make_runtime, make_trainjob, play
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, SECRETS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions
from trainmaster.client.writes import Write, WriteRefusal, apply_in_order
from trainmaster.controllers.trainjob.announced import ANNOTATION
from trainmaster.engine.apply import is_passing
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

KEYS = "alpha-mpi-ssh-auth"
UNSEEN = dataclasses.replace(CLUSTER, sees_secrets=False)
JOBS = [make_job("launcher", label="trainer"), make_job("node")]


class Blind:
    """A stage whose controller may not read Secrets, and writes in order as on a cluster."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._view = stage.cluster.view

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        assert gvr != SECRETS
        return self._view.find(gvr, namespace, name)

    def list(self, gvr: GVR, namespace: str = "", labels: object = None) -> Sequence[Object]:
        return list(self._view.list(gvr, namespace))

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return list(self._view.owned(gvr, namespace, owner_uid))

    async def submit(self) -> None:
        await self.stage.create_runtime(make_runtime({"numNodes": 1, "mpi": {}}, jobs=JOBS))
        await self.stage.create(TRAIN_JOBS, make_trainjob())

    async def step(self, *, crash_after: int | None = None) -> Sequence[Write]:
        """One pass; `crash_after`: it ends after so many writes."""
        writes = await self._pass(())
        applied = await self._apply(writes[:crash_after])
        if applied is not None and crash_after is None and not is_passing(applied):
            assert await self._apply(await self._pass((applied,))) is None
        await self.stage.cluster.settle()
        return writes

    async def _pass(self, refusals: tuple[WriteRefusal, ...]) -> Sequence[Write]:
        now = Now(self.stage.clock.now())
        return list(self.stage.controller.reconcile(self, Request("default", "alpha"), now, refusals).all_writes)

    async def _apply(self, writes: Sequence[Write]) -> WriteRefusal | None:
        applied = await apply_in_order(self.stage.cluster.client, writes, field_manager="trainer")
        return applied.refusal

    @property
    def announced(self) -> str | None:
        snapshot = self.stage.get(CONFIG_MAPS, "alpha-runtime-snapshot")
        found: str | None = (snapshot["metadata"].get("annotations") or {}).get(ANNOTATION)
        return found

    @property
    def waiting(self) -> str:
        status = self.stage.get(TRAIN_JOBS).get("status") or {}
        return str((status.get("waiting") or {}).get("reason", ""))


def play_blind(test: Callable[[Blind], Awaitable[None]]) -> None:
    async def body(stage: Stage) -> None:
        blind = Blind(stage)
        await blind.submit()
        await test(blind)

    play(body, context=UNSEEN)


@pytest.mark.parametrize("writes", range(6))
def test_the_keys_are_made_once_wherever_the_operator_is_killed(writes: int) -> None:
    async def test(blind: Blind) -> None:
        await blind.step(crash_after=writes)
        before = blind.stage.find(SECRETS, KEYS)
        for _ in range(3):
            await blind.step()
        assert blind.stage.find(JOB_SETS) is not None and blind.waiting == ""
        after = blind.stage.get(SECRETS, KEYS)
        assert before is None or after["data"] == before["data"]
        assert blind.announced == KEYS
        assert not await blind.step(), "it comes to rest"

    play_blind(test)


def test_a_secret_of_somebody_else_is_not_used_and_the_job_goes_on_when_it_is_gone() -> None:
    async def test(blind: Blind) -> None:
        client = blind.stage.cluster.client
        foreign: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": KEYS, "namespace": "default"}}
        await client.create(SECRETS, foreign, "default")
        for _ in range(3):
            await blind.step()
            assert blind.waiting == "NameConflict" and blind.announced is None
            assert blind.stage.find(JOB_SETS) is None
        await client.delete(SECRETS, KEYS, "default", DeleteOptions())
        await blind.step()
        await blind.step()
        assert blind.stage.find(JOB_SETS) is not None and blind.waiting == "" and blind.announced == KEYS

    play_blind(test)


def test_keys_that_somebody_deleted_are_made_again_when_the_job_is_resumed() -> None:
    async def test(blind: Blind) -> None:
        await blind.step()
        await blind.stage.patch(TRAIN_JOBS, {"spec": {"suspend": True}})
        await blind.step()
        await blind.stage.cluster.client.delete(SECRETS, KEYS, "default", DeleteOptions())
        assert not [write for write in await blind.step() if write.gvr == SECRETS], "it is suspended"
        await blind.stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await blind.step()
        assert blind.stage.find(SECRETS, KEYS) is not None
        await blind.step()
        assert not [write for write in await blind.step() if write.gvr == SECRETS], "once"

    play_blind(test)
