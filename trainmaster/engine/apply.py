"""Applies a plan's writes: as one transaction in-process, or in order through any client.

A plan of hundreds of writes (the Pods of a large job) is applied in several transactions, in order, because a single
one would block everybody else. Plans must tolerate partial application anyway, since a crash can cause it on a cluster.
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
"""A plan with more writes is split: this many take some milliseconds, in which nothing else runs."""
PIECE = 16
"""Writes per transaction of a plan that is split. Pieces follow one another, and other writes wait for several of them:
until they are made, until their commit starts, and until that is noticed."""


class AtomicClient(Protocol):
    """What `apiserver.local.LocalClient` adds to a Client."""

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
    """Whether the view was stale or the server busy, so that a retry after reading again may succeed."""
    error = refusal.error
    if error.code == 404 and isinstance(refusal.write, Create):
        # The kind is not served, or the namespace is gone: retrying does not help, and it should be reported.
        return False
    return error.code in (404, 409, 410, 429) or error.code >= 500
