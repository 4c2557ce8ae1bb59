"""The read interface of reconcilers: from memory, synchronous, without I/O.

Embedded, a view reads the store's own state and is always current; on a cluster it reads watch caches and may be stale,
which tests simulate. Objects are shared: never modify what a view returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypeVar, cast, runtime_checkable

from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import ObjectList


class View(Protocol):
    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """All objects of the kind (namespace "" is all) whose labels contain all of `labels`, by namespace and name."""
        ...

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        """Objects of the kind in that namespace that name that uid as their controller (`controller: true`). An owner
        has no children in other namespaces, whatever objects there claim."""
        ...


class ViewSummary(Protocol):
    """Derived data about all objects of some kinds, maintained incrementally so that nobody has to go through all of
    them.

    It is fed with every existing object and then with every change. `put` may repeat a known object or update it; it
    never raises.

    Of existing objects at rest (`controllers.lifecycle.at_rest`) it gets the outlines, if it counts them at all.
    """

    gvrs: ClassVar[tuple[GVR, ...]]
    counts_at_rest: ClassVar[bool]

    def put(self, gvr: GVR, obj: Object) -> None: ...

    def drop(self, gvr: GVR, namespace: str, name: str) -> None: ...


@runtime_checkable
class RestingSummary(Protocol):
    """A summary that keeps nothing of single objects at rest."""

    def end_rest(self, gvr: GVR, outline: Object) -> None:
        """Called before `put` or `drop` of an object that was at rest."""
        ...


S = TypeVar("S", bound=ViewSummary)


@runtime_checkable
class SummaryView(Protocol):
    """A view that maintains summaries."""

    def summary(self, build: Callable[[], S]) -> S: ...


def summarize(view: View, build: Callable[[], S]) -> S:
    """The view's summary, read-only. If the view maintains none, it is computed each time."""
    # Not isinstance, which takes as long for a protocol as a pass of the scheduler.
    summary: Callable[[Callable[[], S]], S] | None = getattr(view, "summary", None)
    if summary is not None:
        return summary(build)
    made = build()
    for gvr in made.gvrs:
        for obj in view.list(gvr):
            made.put(gvr, obj)
    return made


class RestingView(Protocol):
    """A view that lists objects at rest apart (`controllers.lifecycle.at_rest`)."""

    async def list_active(self, gvr: GVR, namespace: str = "") -> ObjectList:
        """The objects that are not at rest."""
        ...

    def list_at_rest(self, gvr: GVR) -> Iterator[tuple[str, str, str]]:
        """(uid, namespace, name) of the others, as they are at the time of the call."""
        ...


@runtime_checkable
class LaggingView(Protocol):
    """A view that may be stale and knows whether it has reached a version of a kind in a namespace."""

    def shows(self, gvr: GVR, namespace: str, version: str) -> bool: ...


class ContentMissing(Exception):
    """An object exists, but its content is not in memory."""

    def __init__(self, gvr: GVR, namespace: str, name: str) -> None:
        super().__init__(f"the content of {gvr.plural} {namespace}/{name} is not in memory")
        self.gvr = gvr
        self.namespace = namespace
        self.name = name


class ContentUnavailable(Exception):
    """The server did not return a content; the text says why."""


@runtime_checkable
class PartialView(Protocol):
    """A view that has only the metadata of some objects in memory."""

    @property
    def whole(self) -> View:
        """The same view, except that `find` raises ContentMissing instead of returning only the metadata."""
        ...

    async def load(self, missing: ContentMissing) -> None:
        """Reads the content from the server. Raises ContentUnavailable."""
        ...


R = TypeVar("R")


async def ask_whole(view: View, question: Callable[[View], R]) -> R:
    """Calls the function, again after each content that it lacks was read."""
    if not hasattr(view, "whole"):  # not isinstance, as above
        return question(view)
    partial = cast(PartialView, view)
    while True:
        try:
            return question(partial.whole)
        except ContentMissing as missing:
            await partial.load(missing)
