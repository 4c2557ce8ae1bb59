"""Sources: which changes trigger which requests.

A source names a collection and a function from a changed object to requests. The function gets the view, for mappings
that need more than the object (all jobs that wait for a runtime); it must be cheap, because it runs for each change.
The queue removes duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items
from trainmaster.client.view import View
from trainmaster.engine.request import Request
from trainmaster.jobs.models.objects import ObjectModel

Mapper: TypeAlias = Callable[[View, Object], Iterable[Request]]


def wait_for_nothing(view: View, obj: Object) -> float:
    return 0.0


_ENDS = frozenset(("Complete", "Completed", "Failed", "SuccessCriteriaMet", "FailureTarget"))


def is_report(obj: Object, *, own: bool) -> bool:
    """Whether a change is one of many in quick succession, so that waiting a little saves passes: status updates of a
    working object, or the creation of a child. Not those that people wait for: a new object, a deletion, a failure, an
    end. `own`: the object is of the controller's own kind."""
    one = ObjectModel(obj)
    if one.is_deleting:
        return False
    if status := one.status:
        if status.get("phase") == "Failed":
            return False
        for condition in one.conditions:
            if condition.get("type") in _ENDS and condition.get("status") == "True":
                return False
    elif own:
        return False
    return own or one.controller is not None


@dataclass(frozen=True, slots=True)
class ChangeSource:
    gvr: GVR
    requests: Mapper
    delay: Callable[[View, Object], float] = wait_for_nothing
    """Seconds before the pass. If a pass is expensive, it then handles many changes at once."""
    fans_out: bool = False
    """Whether a change may concern any number of objects. At the start, `requests` is not called for objects that have
    not changed since the controllers were last idle."""
    owner: str = ""
    """If given, `requests` is not called for objects whose controller is of another kind. With many controllers of the
    same children, a change then costs as much as with one."""
    only: Request | None = None
    """If given, `requests` is called only for the object with this name: a policy that many controllers read."""


def find_owner_kind(obj: Object) -> str:
    """The kind of the controller of the object; "" if it has none."""
    for owner in list_items(obj["metadata"], "ownerReferences"):
        if owner.get("controller"):
            return str(owner.get("kind", ""))
    return ""


def map_to_self(view: View, obj: Object) -> Iterable[Request]:
    meta = obj["metadata"]
    return (Request(meta.get("namespace", ""), meta["name"]),)


def map_to_owner(kind: str) -> Mapper:
    """The controller of the object, if it is of that kind (names are unique within our own API groups)."""

    def map_owner(view: View, obj: Object) -> Iterable[Request]:
        one = ObjectModel(obj)
        owner = one.controller
        if owner is None or owner.get("kind") != kind:
            return ()
        return (Request(one.namespace, owner["name"]),)

    return map_owner
