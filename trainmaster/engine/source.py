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


@dataclass(frozen=True, slots=True)
class Source:
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
