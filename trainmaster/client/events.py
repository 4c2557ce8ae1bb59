"""The event recorder: writes core/v1 Events without ever blocking the caller.

`record` only queues. One task writes: the name of an event is derived from its content, so that a repetition finds the
existing event and only increments its count; repetitions in the queue are merged before they are written. When the
queue is full the oldest events are dropped and counted, because events are not essential.

`firstTimestamp` is always set (the Kubeflow SDK skips events without it), and so is `eventTime` (the Python client
refuses events.k8s.io without it).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import EVENTS
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.client.contract import Client, PatchType
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock, format_micro_time, format_time
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 1024
"""Upstream's limit for an event's text."""
_LONGEST_REASON = 128
_RETRY, _RETRIES = BackoffPolicy(first=0.2, cap=1.0), 3
_PASSING = (409, 429)


@dataclass(slots=True)
class _Pending:
    event: Object
    count: int
    last: datetime


class BufferedEventRecorder:
    """Async context manager; on exit it writes what is still queued, for a short time."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        component: str,
        host: str = "",
        most: int = 1000,
        flush_seconds: float = 2.0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._host = host
        self._most = most
        self._flush_seconds = flush_seconds
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stack = AsyncExitStack()
        self.dropped = 0

    async def __aenter__(self) -> Self:
        scope = await self._stack.enter_async_context(Scope("events"))
        scope.spawn_forever(self._write_all(), name=f"events.{self._component}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(self._flush_seconds):
                await self.flush()
        except TimeoutError:
            log.warning("events not written at the end", extra={"count": len(self._pending)})
        finally:
            await self._stack.__aexit__(kind, error, trace)

    def record(
        self,
        about: Fields,
        reason: str,
        message: str,
        *,
        warning: bool = False,
        action: str = "",
        component: str = "",
    ) -> None:
        """`about` needs apiVersion, kind and metadata; only the reference is kept. `component` "": the recorder's."""
        now = self._clock.now()
        event = build_event(about, reason, message, now, component=component or self._component, host=self._host,
                            warning=warning, action=action)  # fmt: skip
        key = (event["metadata"]["namespace"], event["metadata"]["name"])
        waiting = self._pending.get(key)
        if waiting is not None:
            waiting.count += 1
            waiting.last = now
            return
        if len(self._pending) >= self._most:
            del self._pending[next(iter(self._pending))]
            self.dropped += 1
        self._pending[key] = _Pending(event, 1, now)
        self._idle.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Returns once everything recorded so far was written or dropped."""
        await self._idle.wait()

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                key = next(iter(self._pending))
                pending = self._pending.pop(key)
                try:
                    await self._write_patiently(pending)
                except (StatusError, OSError) as error:
                    # A namespace at its quota of events is not worth an entry in the server's log.
                    refused = isinstance(error, StatusError) and error.code == 403
                    log.log(
                        logging.DEBUG if refused else logging.WARNING,
                        "event not stored",
                        extra={"action": "events.lost", "reason": pending.event["reason"], "error": str(error)},
                    )
            self._idle.set()

    async def _write_patiently(self, pending: _Pending) -> None:
        """Others wait meanwhile, so not for long."""
        pauses = Backoff(_RETRY)
        while True:
            try:
                await self._write(pending)
                return
            except StatusError as error:
                if pauses.failures == _RETRIES or not (error.code in _PASSING or error.code >= 500):
                    raise
            await self._clock.sleep(pauses.next())

    async def _write(self, pending: _Pending) -> None:
        await write_event(self._client, pending.event, count=pending.count, last=pending.last)


async def write_event(client: Client, event: Object, *, count: int, last: datetime) -> None:
    """Creates the event, or increments the count of the existing one with the same content."""
    name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
    moment = format_time(last)
    event["count"], event["lastTimestamp"] = count, moment
    try:
        await client.create(EVENTS, event, namespace)
    except AlreadyExists:
        try:
            old = await client.get(EVENTS, name, namespace)
            patch = {"count": (old.get("count") or 1) + count, "lastTimestamp": moment}
            await client.patch(EVENTS, name, PatchType.MERGE, patch, namespace)
        except NotFound:
            await client.create(EVENTS, event, namespace)


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 4] + " ..."


def build_event(
    about: Fields,
    reason: str,
    message: str,
    now: datetime,
    *,
    component: str,
    host: str = "",
    warning: bool = False,
    action: str = "",
) -> Object:
    meta = about["metadata"]
    kind = "Warning" if warning else "Normal"
    text = shorten(message, LONGEST_MESSAGE)
    identity = "\0".join((str(meta.get("uid", "")), component, kind, reason, text))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    # Events about cluster-scoped objects are in `default`, as upstream.
    namespace = meta.get("namespace") or "default"
    reference: Object = {
        "apiVersion": about.get("apiVersion", ""),
        "kind": about.get("kind", ""),
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    if meta.get("namespace"):
        reference["namespace"] = namespace
    moment = format_time(now)
    event: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:236]}.{digest}", "namespace": namespace},
        "involvedObject": reference,
        "type": kind,
        "reason": shorten(reason, _LONGEST_REASON),
        "message": text,
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "eventTime": format_micro_time(now),
        "source": {"component": component, **({"host": host} if host else {})},
        "reportingComponent": component,
        "reportingInstance": host or component,
        "action": action or reason,
    }
    return event
