"""Replaces attributes of real classes and modules for one run, and reconcilers of controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from trainmaster.client.view import View
from trainmaster.client.writes import WriteRefusal
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import Plan, Reconcile, ReconcileInSteps
from trainmaster.engine.request import Request
from trainmaster.kit.steps import Steps, finish_steps
from trainmaster.kit.timeline import Now

AttributePatch: TypeAlias = tuple[Any, str, Callable[[Any], Any]]
"""(class or module, attribute, function from the original to its replacement)."""
ChangePasses: TypeAlias = Callable[[ReconcileInSteps], ReconcileInSteps]


@contextmanager
def patch_attributes(patches: Iterable[AttributePatch]) -> Iterator[None]:
    originals: list[tuple[Any, str, Any]] = []
    try:
        for place, name, build in patches:
            originals.append((place, name, getattr(place, name)))
            setattr(place, name, build(getattr(place, name)))
        yield
    finally:
        for place, name, original in reversed(originals):
            setattr(place, name, original)


def change_passes(controller: Controller, change: ChangePasses) -> Controller:
    """The controller with a changed reconciler. It takes steps if it did before."""
    in_steps = controller.reconcile_in_steps
    changed = change(in_steps or in_one_step(controller.reconcile))

    def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Plan:
        return finish_steps(changed(view, request, now, refusals))

    return replace(controller, reconcile=reconcile, reconcile_in_steps=None if in_steps is None else changed)


def in_one_step(reconcile: Reconcile) -> ReconcileInSteps:
    def run(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal]) -> Steps[Plan]:
        yield from ()
        return reconcile(view, request, now, refusals)

    return run
