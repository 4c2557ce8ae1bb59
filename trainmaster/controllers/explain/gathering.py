"""Fetches what `reasons.explain` reads through any client, for callers without a view (commands, the REST API)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from trainmaster.api.meta import GVR
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_RUNTIMES,
)
from trainmaster.client.contract import Client
from trainmaster.client.listed import ListedView, fetch
from trainmaster.client.view import View
from trainmaster.jobs.kinds import TRAINING_KINDS, split_reference
from trainmaster.jobs.queueing.names import is_queued
from trainmaster.jobs.queueing.reading import read_wait
from trainmaster.jobs.queueing.waits import QueueWait

_QUEUE = (PODS, JOB_SETS, JOBS, CONFIG_MAPS)
"""The kinds that determine the queue, which is known only if they can be listed in all namespaces. ConfigMaps contain
the snapshots of runtimes and two policies of the installation."""
_MOST_WAITS = 20
"""Jobs in queues of Kueue that are asked about together; each takes up to four requests."""
_OF_NAMESPACE = (TRAINING_RUNTIMES, LIMIT_RANGES, RESOURCE_QUOTAS)


async def collect_waits(
    client: Client, view: View, namespace: str, names: Collection[str], now: datetime
) -> dict[str, QueueWait]:
    """By uid, why Kueue holds jobs of a namespace; without names, the first few. Nothing is asked about others."""
    jobs = [model(obj) for model in TRAINING_KINDS.values() for obj in view.list(model.gvr, namespace)]
    wanted = {split_reference(name)[1] for name in names}
    queued = [job for job in jobs if is_queued(job) and (not wanted or job.name in wanted)]
    if not queued:
        return {}
    waits = {job.uid: await read_wait(client, job, now) for job in queued[:_MOST_WAITS]}
    return {uid: wait for uid, wait in waits.items() if wait is not None}


async def collect(client: Client, namespace: str) -> ListedView:
    """Fetches everything that the explanation depends on. If the caller may not list all namespaces, only the given one
    is read, and the explanation contains no predictions."""
    jobs = [model.gvr for model in TRAINING_KINDS.values()]
    wanted: dict[GVR, str] = dict.fromkeys((*_QUEUE, *jobs, NODES, PRIORITY_CLASSES, CLUSTER_TRAINING_RUNTIMES), "")
    view = await fetch(client, {**wanted, **dict.fromkeys(_OF_NAMESPACE, namespace)}, needed=_QUEUE)
    if not view.missing.issuperset(jobs) and view.missing.isdisjoint(_QUEUE):
        return view
    own = dict.fromkeys((*_QUEUE, *jobs, *_OF_NAMESPACE), namespace)
    return await fetch(client, {**own, CLUSTER_TRAINING_RUNTIMES: ""})
