"""What a reconciler returns: writes, one status patch, events, effects, and when to reconcile again. All as data.

The manager applies a plan: in-process as one transaction, over HTTP in order, stopping at the first refusal. The status
patch comes last, and events are sent only after everything was accepted. A plan never refers to the uid of an object
that it creates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.meta import Fields, Object
from trainmaster.client.view import View
from trainmaster.client.writes import Patch, Write, WriteRefusal
from trainmaster.engine.request import Request
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes event to record once the plan has been applied."""

    about: Fields
    """The object as the reconciler saw it; only its reference is kept."""
    reason: str
    message: str
    warning: bool = False
    action: str = "Reconciling"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something other than an API write, performed once the plan's writes are accepted, by the function registered with
    the manager under that name. It may be repeated after a crash, so it must be idempotent."""

    name: str
    subject: Object


Perform: TypeAlias = Callable[[Object], Awaitable[bool]]
"""Performs an effect. True: something that the reconciler sees has changed, so it runs again immediately."""


@dataclass(frozen=True, slots=True)
class Plan:
    writes: tuple[Write, ...] = ()
    status: Patch | None = None
    """Applied after `writes`: the one status write of a pass."""
    notes: tuple[Note, ...] = ()
    requeue_after: float | None = None
    """Seconds until the next pass, computed from stored times; None if only events can change anything."""
    effects: tuple[Effect, ...] = ()

    @property
    def all_writes(self) -> tuple[Write, ...]:
        return self.writes if self.status is None else (*self.writes, self.status)


NOTHING = Plan()

Reconcile: TypeAlias = Callable[[View, Request, Now, Sequence[WriteRefusal]], Plan]
"""`Now` is the wall time for what is stored, and how long ago stored times are (`kit.timeline`). `refusals` is empty in
a normal pass. When a plan was refused, the function is called again immediately with the refusals, and returns a plan
that only reports them."""

ReconcileInSteps: TypeAlias = Callable[[View, Request, Now, Sequence[WriteRefusal]], Steps[Plan]]
"""The same in steps of about a millisecond, for objects with thousands of children. It reads the children before its
first step, so what happens between two steps is seen by the next pass."""
