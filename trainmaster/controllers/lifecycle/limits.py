"""History limits: each namespace keeps only the newest n Complete and the newest m Failed jobs.

A request names a namespace. Jobs are sorted by the time they ended, then by name, so passes over the same state delete
the same jobs. A job that is not archived yet is kept until it is; archiving does not change the job, so the controller
polls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES
from trainmaster.client.view import View
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.finish import POLICY, list_all_finished, read_retention
from trainmaster.controllers.lifecycle.retention import RETRY
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, build_delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import COMPLETE, FAILED, TrainingJob
from trainmaster.kit.clock import parse_time
from trainmaster.kit.timeline import Now

MOST = 50
"""Deletions per pass; the next pass follows at once."""
UNRECORDED = 1.0
"""Seconds until the next pass while a job is waiting to be archived; `retention.RETRY` if archiving failed."""


def reconcile(
    context: LifecycleContext, view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()
) -> Plan:
    policy = read_retention(view)
    limits = {COMPLETE: policy.keep_successful, FAILED: policy.keep_failed}
    if refusals or all(limit is None for limit in limits.values()):
        return NOTHING
    sorted_ends: dict[str, list[tuple[str, str, TrainingJob]]] = {COMPLETE: [], FAILED: []}
    for job in list_all_finished(view, context.models, request.name):
        end = job.end
        if end is not None:
            moment = parse_time(end[1]).isoformat()
            sorted_ends[end[0]].append((moment, job.name, job))
    draft = Draft()
    for kind, limit in limits.items():
        if limit is None:
            continue
        newest_first = sorted(sorted_ends[kind], key=lambda entry: entry[:2], reverse=True)
        for _, _, job in newest_first[limit:]:
            uid = job.uid
            if context.ledger is not None and not context.ledger.is_archived(uid):
                draft.wake_after(RETRY if context.ledger.find_trouble(uid) else UNRECORDED)
            elif len(draft.writes) == MOST:
                draft.wake_after(0.001)
            else:
                draft.write(build_delete(job.gvr, job, versioned=True))
                text = f"deleted: this namespace keeps the newest {limit} that are {kind}"
                draft.note(job, "HistoryLimit", text)
    return draft.build_plan()


def map_job(view: View, obj: Object) -> Iterable[Request]:
    """Only finished jobs that still exist: one less is no reason to delete others."""
    job = read_training_job(obj)
    if job.is_finished and view.find(job.gvr, job.namespace, job.name) is not None:
        yield Request("", job.namespace)


def map_policy(context: LifecycleContext, view: View, config_map: Object) -> Iterable[Request]:
    for namespace in sorted({job.namespace for job in list_all_finished(view, context.models)}):
        yield Request("", namespace)


def build_controller(context: LifecycleContext | None = None) -> Controller:
    context = context or LifecycleContext()
    return Controller(
        name="history-limits",
        kind=NAMESPACES,
        reconcile=partial(reconcile, context),
        reporter="trainmaster-lifecycle",
        sources=(
            *(ChangeSource(model.gvr, map_job) for model in context.models),
            ChangeSource(CONFIG_MAPS, partial(map_policy, context), only=POLICY, fans_out=True),
        ),
    )


CONTROLLER = build_controller()
