"""Applies a plan's writes: as one transaction in-process, or in order through any client.

A plan with many writes (the Pods of a large job) is applied in several transactions, in order, because a single one
would block everybody else, and so would its commit. Plans must tolerate partial application anyway, since a crash can
cause it on a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from trainmaster.client.contract import Client
from trainmaster.client.writes import Applied, Create, Learn, Write, WriteRefusal, apply_in_order

Apply: TypeAlias = Callable[[Sequence[Write], str], Awaitable[Applied]]
"""(writes, field manager)."""


LARGEST = 8
"""Writes per transaction. Nothing else runs during a transaction, and this many writes take about a millisecond.
Others wait for several of them: until their own write is made, until its commit starts, and until that is noticed."""


class AtomicClient(Protocol):
    """What `apiserver.local.LocalClient` adds to a Client."""

    def apply_atomically(self, writes: Sequence[Write], *, field_manager: str) -> Applied: ...

    async def catch_up(self) -> None: ...


def apply_in_one(client: AtomicClient) -> Apply:
    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        await client.catch_up()
        applied = client.apply_atomically(writes[:LARGEST], field_manager=field_manager)
        for start in range(LARGEST, len(writes), LARGEST):
            if applied.refusal is not None:
                break
            await asyncio.sleep(0)
            await client.catch_up()
            applied = client.apply_atomically(writes[start : start + LARGEST], field_manager=field_manager)
        return applied

    return apply


def apply_one_by_one(client: Client, learn: Learn | None = None) -> Apply:
    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        return await apply_in_order(client, writes, field_manager=field_manager, learn=learn)

    return apply


def is_passing(refusal: WriteRefusal) -> bool:
    """Whether the view was stale or the server busy, so that a retry after reading again may succeed."""
    error, write = refusal.error, refusal.write
    if isinstance(write, Create) and (error.code == 404 or refusal.is_taken):
        # The kind is not served, the namespace is gone, or the name is taken: retrying does not help.
        return False
    return error.code in (404, 409, 410, 429) or error.code >= 500
