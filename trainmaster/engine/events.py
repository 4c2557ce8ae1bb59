"""Events: notes of plans and of the node become Event objects, repeats are counted in one object.

The name of an event is derived from what it says, so a repeat finds its predecessor and only its count and time
change. Events always carry `firstTimestamp`, because the Kubeflow SDK leaves out those that do not (design 11). An
event that cannot be stored is logged and forgotten: it describes a change, it is not part of it.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS
from trainmaster.api.status import AlreadyExists, StatusError
from trainmaster.client.contract import Client, PatchType
from trainmaster.engine.plan import Note
from trainmaster.kit.clock import Clock, format_time

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 1024
"""Upstream's limit for an event's text."""


class Recorder(Protocol):
    async def record(self, note: Note, reporter: str) -> None: ...


class EventRecorder:
    def __init__(self, client: Client, clock: Clock, *, host: str = "") -> None:
        self._client = client
        self._clock = clock
        self._host = host

    async def record(self, note: Note, reporter: str) -> None:
        event = build_event(note, reporter, self._clock.now(), self._host)
        meta = event["metadata"]
        try:
            try:
                await self._client.create(EVENTS, event, meta["namespace"])
            except AlreadyExists:
                await self._count(event)
        except StatusError as error:
            log.warning("event not stored", extra={"reason": note.reason, "error": error.message})

    async def _count(self, event: Object) -> None:
        meta = event["metadata"]
        old = await self._client.get(EVENTS, meta["name"], meta["namespace"])
        patch = {"count": (old.get("count") or 1) + 1, "lastTimestamp": event["lastTimestamp"]}
        await self._client.patch(EVENTS, meta["name"], PatchType.MERGE, patch, meta["namespace"])


def build_event(note: Note, reporter: str, now: datetime, host: str = "") -> Object:
    about = note.about["metadata"]
    kind = "Warning" if note.warning else "Normal"
    text = note.message if len(note.message) <= LONGEST_MESSAGE else note.message[: LONGEST_MESSAGE - 4] + " ..."
    identity = "\0".join((about.get("uid", ""), reporter, kind, note.reason, text))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    # Events about cluster-scoped objects live in `default`, as upstream's do.
    namespace = about.get("namespace") or "default"
    reference = {
        "apiVersion": note.about.get("apiVersion", ""),
        "kind": note.about.get("kind", ""),
        "name": about["name"],
        "uid": about.get("uid", ""),
        "resourceVersion": about.get("resourceVersion", ""),
    }
    if about.get("namespace"):
        reference["namespace"] = namespace
    moment = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:236]}.{digest}", "namespace": namespace},
        "involvedObject": reference,
        "type": kind,
        "reason": note.reason,
        "message": text,
        "action": note.action,
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": reporter, **({"host": host} if host else {})},
        "reportingComponent": reporter,
        "reportingInstance": host,
    }
