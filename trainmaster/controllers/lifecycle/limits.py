"""History limits: in each namespace only the newest n Complete and the newest m Failed TrainJobs stay.

One request is one namespace. The oldest by the time of their end go first, names decide between equals, so every look
at the same state deletes the same jobs. A job that history has not archived yet stays until it is; no change of the job
tells of that, so this looks again by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.finish import (
    COMPLETE,
    FAILED,
    find_policy,
    is_policy,
    list_finished,
)
from trainmaster.controllers.lifecycle.retention import RETRY
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, build_delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import parse_time
from trainmaster.kit.timeline import Now

MOST = 50
"""Deletions of one look; the next look follows at once."""
UNRECORDED = 1.0
"""Seconds until the next look while a job waits for its record; `retention.RETRY` once that could not be written."""


def reconcile(
    context: LifecycleContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Plan:
    policy = find_policy(view)
    limits = {COMPLETE: policy.keep_successful, FAILED: policy.keep_failed}
    if refusals or all(limit is None for limit in limits.values()):
        return NOTHING
    sorted_ends: dict[str, list[tuple[str, str, TrainJob]]] = {COMPLETE: [], FAILED: []}
    for trainjob in list_finished(view, request.name):
        end = trainjob.end
        if end is not None:
            moment = parse_time(end[1]).isoformat()
            sorted_ends[end[0]].append((moment, trainjob.name, trainjob))
    draft = Draft()
    for kind, limit in limits.items():
        if limit is None:
            continue
        newest_first = sorted(sorted_ends[kind], key=lambda entry: entry[:2], reverse=True)
        for _, _, trainjob in newest_first[limit:]:
            uid = trainjob.uid
            if context.ledger is not None and not context.ledger.is_archived(uid):
                draft.wake_after(RETRY if context.ledger.find_trouble(uid) else UNRECORDED)
            elif len(draft.writes) == MOST:
                draft.wake_after(0.001)
            else:
                draft.write(build_delete(TRAIN_JOBS, trainjob, versioned=True))
                text = f"deleted: this namespace keeps the newest {limit} that are {kind}"
                draft.note(trainjob, "HistoryLimit", text)
    return draft.build_plan()


def map_trainjob(view: View, obj: Object) -> Iterable[Request]:
    trainjob = TrainJob(obj)
    if trainjob.is_finished:
        yield Request("", trainjob.namespace)


def map_policy(view: View, config_map: Object) -> Iterable[Request]:
    if is_policy(config_map):
        for namespace in sorted({trainjob.namespace for trainjob in list_finished(view)}):
            yield Request("", namespace)


def build_controller(context: LifecycleContext | None = None) -> Controller:
    return Controller(
        name="history-limits",
        kind=NAMESPACES,
        reconcile=partial(reconcile, context or LifecycleContext()),
        reporter="trainmaster-lifecycle",
        sources=(ChangeSource(TRAIN_JOBS, map_trainjob), ChangeSource(CONFIG_MAPS, map_policy)),
    )


CONTROLLER = build_controller()
