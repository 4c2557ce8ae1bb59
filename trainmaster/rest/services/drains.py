"""Drains the machine of a home, and ends the drain, with the rights of the caller."""

from __future__ import annotations

from trainmaster.api.resources import NODES
from trainmaster.jobs.drain_progress import DrainState, Stopping, read_drain
from trainmaster.jobs.draining import end_drain, start_drain
from trainmaster.rest.callers import Caller
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.machine import DrainAnswer, DrainedJob, NodeDrain
from trainmaster.rest.problems import Problem


async def check(caller: Caller, backend: Backend, name: str) -> None:
    """StatusError if the caller may not see nodes, or there is none with this name."""
    await caller.client.get(NODES, name)
    if backend.server.mode == "cluster":
        hint = f"use `kubectl drain {name}` and `kubectl uncordon {name}`"
        raise Problem(409, "not-here", "only the machine of a home can be drained here", hint=hint)


async def read(caller: Caller) -> DrainAnswer:
    return _build(await read_drain(caller.client))


async def start(caller: Caller, backend: Backend, reason: str) -> DrainAnswer:
    await start_drain(caller.client, backend.clock.now(), caller.identity.user, reason)
    return await read(caller)


async def end(caller: Caller) -> DrainAnswer:
    before = await read_drain(caller.client)
    await end_drain(caller.client)
    return _build(DrainState(None, before.stopping, before.suspended))


def _build(state: DrainState) -> DrainAnswer:
    drain = state.drain
    return DrainAnswer(
        drain=None
        if drain is None
        else NodeDrain(
            since=drain.since,
            by=drain.by or None,
            reason=drain.reason or None,
            ends_with_start=drain.ends_with_start,
        ),
        complete=state.is_complete,
        stopping=[_build_job(one) for one in state.stopping],
        suspended=[_build_job(one) for one in state.suspended],
    )


def _build_job(one: Stopping) -> DrainedJob:
    return DrainedJob(namespace=one.namespace, name=one.name, kind=one.kind, uid=one.uid, pods=one.pods)
