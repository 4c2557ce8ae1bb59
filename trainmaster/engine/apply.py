"""The two ways to carry out a plan's writes: as one transaction in-process, or in order through any client.

A plan of hundreds of writes (the Pods of a large job) is carried out in several transactions, in order: as one it would
keep everybody else waiting. Every plan must stand being cut anyway, since a crash can do it on a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from trainmaster.client.contract import Client
from trainmaster.client.writes import Applied, Create, Write, WriteRefusal, apply_in_order

Apply: TypeAlias = Callable[[Sequence[Write], str], Awaitable[Applied]]
"""(writes, field manager)."""


LARGEST = 64
"""Writes of one plan that are still one transaction: some milliseconds, in which nobody else gets a turn."""
PIECE = 16
"""Writes in each transaction of a plan that has to be cut. Many such pieces follow one another, and somebody else's
write waits for several of them: until it is made, until its commit is begun, and until that is noticed."""


class AtomicClient(Protocol):
    """What `apiserver.local.LocalClient` offers beyond a Client."""

    def apply_atomically(self, writes: Sequence[Write], *, field_manager: str) -> Applied: ...


def apply_in_one(client: AtomicClient) -> Apply:
    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        if len(writes) <= LARGEST:
            return client.apply_atomically(writes, field_manager=field_manager)
        applied = Applied(None, 0)
        for start in range(0, len(writes), PIECE):
            applied = client.apply_atomically(writes[start : start + PIECE], field_manager=field_manager)
            if applied.refusal is not None:
                break
            await asyncio.sleep(0)
        return applied

    return apply


def apply_one_by_one(client: Client) -> Apply:
    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        return await apply_in_order(client, writes, field_manager=field_manager)

    return apply


def is_passing(refusal: WriteRefusal) -> bool:
    """The view was not up to date, or the server was busy: reading again and trying again is all there is to do."""
    error = refusal.error
    if error.code == 404 and isinstance(refusal.write, Create):
        # The kind is not served, or the namespace is gone: time alone does not help, and somebody should be told.
        return False
    return error.code in (404, 409, 410, 429) or error.code >= 500
