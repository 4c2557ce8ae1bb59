"""Drains the machine and ends the drain: reads and changes the state, which is in the Node object.

The Node is drained while it is unschedulable and has the annotation `DRAINED_SINCE`. Everything follows from this one
write: the scheduler binds nothing, and the drain controllers suspend what runs (`controllers.drain`). So whoever asked
for it may die at any time. Used by the commands, the REST API, and the start of the server.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.api.labels import (
    DRAIN_REASON,
    DRAINED_BY,
    DRAINED_SINCE,
    DRAINED_UNTIL,
    NEXT_START,
)
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES
from trainmaster.api.status import Conflict, NotFound
from trainmaster.client.contract import Client, PatchType
from trainmaster.jobs.models.nodes import Drain, Node
from trainmaster.kit.clock import format_time

NODE = "local"
"""The only Node of a home."""
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
DRAIN_ANNOTATIONS = (DRAINED_SINCE, DRAINED_BY, DRAIN_REASON, DRAINED_UNTIL)
LONGEST_REASON = 500
_TRIES = 10


def build_uncordon(node: Node) -> Object:
    """The merge patch with which the node takes Pods again."""
    rest = [taint for taint in node.taints if taint.get("key") != UNSCHEDULABLE_TAINT]
    return {"spec": {"unschedulable": None, "taints": rest or None}}


def build_undrain(node: Node) -> Object:
    """The merge patch that ends the drain, or a plain cordon."""
    known = {key: None for key in DRAIN_ANNOTATIONS if key in node.annotations}
    return {"metadata": {"annotations": known}, **build_uncordon(node)} if known else build_uncordon(node)


async def start_drain(
    client: Client, now: datetime, by: str, reason: str = "", *, until_start: bool = False
) -> tuple[Drain, bool]:
    """(the drain, whether this call has begun it). One that a person began is left alone by a shutdown; a person's
    replaces that of a shutdown. NotFound if the node is not registered."""
    for number in range(_TRIES):
        node = Node(await client.get(NODES, NODE))
        before = node.drain
        if before is not None and (until_start or not before.ends_with_start):
            return before, False
        since = before.since if before is not None else format_time(now)
        wanted = {
            DRAINED_SINCE: since,
            DRAINED_BY: by or None,
            DRAIN_REASON: reason[:LONGEST_REASON] or None,
            DRAINED_UNTIL: NEXT_START if until_start else None,
        }
        patch = {"metadata": {**node.head, "annotations": wanted}, "spec": {"unschedulable": True}}
        if await _write(client, patch, is_last=number == _TRIES - 1):
            return Drain(since, by, reason[:LONGEST_REASON], until_start), True
    raise AssertionError("the last try returns or raises")


async def end_drain(client: Client) -> tuple[Drain | None, bool]:
    """(the drain that has ended, whether the node had to be changed: it may have been cordoned only)."""
    for number in range(_TRIES):
        node = Node(await client.get(NODES, NODE))
        if not node.is_cordoned and not any(key in node.annotations for key in DRAIN_ANNOTATIONS):
            return None, False
        patch = build_undrain(node)
        patch["metadata"] = {**patch.get("metadata", {}), **node.head}
        if await _write(client, patch, is_last=number == _TRIES - 1):
            return node.drain, True
    raise AssertionError("the last try returns or raises")


async def _write(client: Client, patch: Object, *, is_last: bool) -> bool:
    """False if the Node has changed since it was read."""
    try:
        await client.patch(NODES, NODE, PatchType.MERGE, patch)
    except Conflict:
        if is_last:
            raise
        return False
    return True


async def find_drain(client: Client) -> Drain | None:
    """None if the machine is not drained, or not registered."""
    try:
        return Node(await client.get(NODES, NODE)).drain
    except NotFound:
        return None


async def end_drain_of_shutdown(client: Client) -> Drain | None:
    """Called when the server starts: ends a drain that was to last until then."""
    drain = await find_drain(client)
    return (await end_drain(client))[0] if drain is not None and drain.ends_with_start else None
