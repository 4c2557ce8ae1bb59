"""Sources: which changes wake which requests.

A source names a collection and a function from a changed object to requests. The function gets the view, for
mappings that need more than the object (all jobs that wait for a runtime); it must be cheap, because it runs for each
change. Repeats cost nothing: the queue removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.client.view import View
from trainmaster.engine.request import Request

Mapper: TypeAlias = Callable[[View, Object], Iterable[Request]]


def wait_for_nothing(view: View, obj: Object) -> float:
    return 0.0


_ENDS = frozenset(("Complete", "Completed", "Failed", "SuccessCriteriaMet", "FailureTarget"))


def is_report(obj: Object, *, own: bool) -> bool:
    """Whether a change is one of many that are on their way, so that looking a little later sees more: what an object
    says while it works, or that a child was made. Not so what people wait for: a new object, one that is deleted, a
    failure, an end. `own`: the object is of the kind that the controller looks at."""
    metadata, status = obj["metadata"], obj.get("status")
    if "deletionTimestamp" in metadata:
        return False
    if status:
        if status.get("phase") == "Failed":
            return False
        for condition in status.get("conditions") or ():
            if condition.get("type") in _ENDS and condition.get("status") == "True":
                return False
    elif own:
        return False
    return own or any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())


@dataclass(frozen=True, slots=True)
class ChangeSource:
    gvr: GVR
    requests: Mapper
    delay: Callable[[View, Object], float] = wait_for_nothing
    """Seconds before the look. Where one look costs more than a change, it sees many changes at once."""


def map_to_self(view: View, obj: Object) -> Iterable[Request]:
    meta = obj["metadata"]
    return (Request(meta.get("namespace", ""), meta["name"]),)


def map_to_owner(kind: str) -> Mapper:
    """The controller of the object, if it is of that kind (names are unique within our own API groups)."""

    def map_owner(view: View, obj: Object) -> Iterable[Request]:
        for reference in obj["metadata"].get("ownerReferences") or ():
            if reference.get("controller") and reference.get("kind") == kind:
                return (Request(obj["metadata"].get("namespace", ""), reference["name"]),)
        return ()

    return map_owner
