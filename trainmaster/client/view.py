"""The read half that reconcilers see: from memory, synchronous, without I/O.

Embedded, a view reads the store's own state and is always current; on a cluster it reads watch caches and may be
stale, and the tests make it so. Objects are shared: never change what a view returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from trainmaster.api.meta import GVR, Object


class View(Protocol):
    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """All objects of the kind (namespace "" is all) whose labels contain all of `labels`, by namespace and name."""
        ...

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        """Objects of the kind in that namespace that name that uid as their controller (`controller: true`). An owner
        has no children in other namespaces, whatever somebody there claims."""
        ...


class ViewSummary(Protocol):
    """What somebody wants to know about all objects of some kinds, so that nobody has to look at each of them again.

    It is a function of what the view shows: fed with every object that exists, and then with every change. `put` may be
    called with an object that it has, or with news of it; it never raises.
    """

    gvrs: ClassVar[tuple[GVR, ...]]

    def put(self, gvr: GVR, obj: Object) -> None: ...

    def drop(self, gvr: GVR, namespace: str, name: str) -> None: ...


S = TypeVar("S", bound=ViewSummary)


@runtime_checkable
class SummaryView(Protocol):
    """A view that keeps summaries current."""

    def summary(self, build: Callable[[], S]) -> S: ...


def summarize(view: View, build: Callable[[], S]) -> S:
    """The summary of a view, which must not be changed. A view that keeps none has it made anew each time."""
    # Not isinstance: Python takes as long to look at a protocol as a pass of the scheduler.
    summary: Callable[[Callable[[], S]], S] | None = getattr(view, "summary", None)
    if summary is not None:
        return summary(build)
    made = build()
    for gvr in made.gvrs:
        for obj in view.list(gvr):
            made.put(gvr, obj)
    return made


@runtime_checkable
class LaggingView(Protocol):
    """What a view that may be stale offers besides: whether it has come as far as that version of the kind."""

    def shows(self, gvr: GVR, version: str) -> bool: ...
