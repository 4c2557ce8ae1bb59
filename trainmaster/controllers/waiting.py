"""Why an object is waiting: {reason, message, since}, and until, if the end is known.

TrainJobs have a field for it (`status.waiting`). Their conditions are only upstream's, because clients take the absence
of conditions to mean "running". JobSets and Jobs have an annotation, which the TrainJob controller copies up. `since`
is kept while the reason stays the same, so a pass without changes writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import orjson

from trainmaster.api.labels import WAITING
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_annotations
from trainmaster.client.writes import Patch
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.kit.clock import format_time

PASSING = frozenset({"Queued", "RestartBackOff", "LeftoverPod", "ClaimTerminating"})
"""Reasons that resolve by themselves. For all others, somebody has to change something."""


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str
    until: str = ""
    """When the wait will end, if that is known; RFC 3339."""

    def to_wire(self, before: Fields | None, now: datetime) -> Object:
        since = format_time(now)
        if before and before.get("reason") == self.reason and isinstance(before.get("since"), str):
            since = before["since"]
        until = {"until": self.until} if self.until else {}
        return {"reason": self.reason, "message": self.message, "since": since, **until}


def find_annotated(obj: Fields) -> Fields | None:
    """The waiting annotation of a JobSet or Job; None if it is missing or cannot be parsed."""
    text = read_annotations(obj).get(WAITING)
    if not text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    is_ours = isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("reason", "message"))
    return value if is_ours else None


def build_annotation_patch(
    gvr: GVR, obj: ObjectModel, waiting: Waiting | None, now: datetime, *, versioned: bool = False
) -> Patch | None:
    """Updates the annotation; None if it is up to date."""
    text: str | None = None
    if waiting is None:
        if WAITING not in obj.annotations:
            return None
    else:
        before = find_annotated(obj.raw)
        after = waiting.to_wire(before, now)
        if before == after:
            return None
        text = orjson.dumps(after).decode()
    return build_patch(gvr, obj, {"metadata": {"annotations": {WAITING: text}}}, versioned=versioned)
