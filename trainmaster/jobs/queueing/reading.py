"""Asks a cluster why jobs wait in queues of Kueue, with the caller's rights. What may not be read is said.

Only jobs that are queued are asked about: a suspended job with the label of a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.labels import QUEUED_JOB_UID
from trainmaster.api.meta import GVR
from trainmaster.api.reading import read_spec, read_text
from trainmaster.api.resources import KUEUE_GROUP, KUEUE_VERSIONS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.training import TrainingJob, TrainingState
from trainmaster.jobs.models.workloads import QueuedWorkload
from trainmaster.jobs.queueing.names import get_queue, is_queued
from trainmaster.jobs.queueing.waits import (
    QueueFacts,
    QueuePosition,
    QueueWait,
    explain_wait,
    read_position,
    read_preemptor,
)

_MOST_NAMED = 50
"""More jobs are not named in the request; then all Workloads of the namespace are read."""
_REFUSED, _MISSING = 403, (404, 503)


@dataclass(frozen=True, slots=True)
class _WorkloadList:
    items: Sequence[QueuedWorkload] = ()
    version: str = ""
    """Of the API; "" if there is no Kueue, or it may not be read."""
    refused: bool = False


async def read_states(client: Client, jobs: Iterable[TrainingJob]) -> dict[str, TrainingState]:
    """By uid, the states of jobs that Kueue holds. At most one request for each namespace."""
    found: dict[str, TrainingState] = {}
    places: dict[str, list[TrainingJob]] = {}
    for job in filter(is_queued, jobs):
        places.setdefault(job.namespace, []).append(job)
    for namespace, queued in places.items():
        for job, facts in (await _read_workloads(client, namespace, queued)).items():
            # The time matters for nothing that a state says.
            found[job.uid] = explain_wait(job, facts, _LONG_AGO).state
    return found


_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


async def _read_workloads(
    client: Client, namespace: str, jobs: Sequence[TrainingJob]
) -> Mapping[TrainingJob, QueueFacts]:
    """Of the jobs that Kueue holds, or may hold."""
    listed = await _list_workloads(client, namespace, [job.uid for job in jobs])
    if listed.refused:
        text = f"you may not list workloads.{KUEUE_GROUP} in namespace {namespace}"
        return {job: QueueFacts(unknown=(text,)) for job in jobs}
    if not listed.version:
        # There is no Kueue: somebody has suspended them.
        return {}
    by_job = {workload.job_uid: workload for workload in listed.items}
    return {job: QueueFacts(by_job.get(job.uid)) for job in jobs}


async def _list_workloads(client: Client, namespace: str, uids: Sequence[str]) -> _WorkloadList:
    named = f"{QUEUED_JOB_UID} in ({','.join(uids)})" if len(uids) <= _MOST_NAMED else ""
    for version in KUEUE_VERSIONS:
        gvr = GVR(KUEUE_GROUP, version, "workloads")
        try:
            page = await client.list(gvr, namespace, ListOptions(label_selector=named))
        except StatusError as error:
            if error.code == _REFUSED:
                return _WorkloadList(refused=True)
            if error.code not in _MISSING:
                raise
        else:
            return _WorkloadList([QueuedWorkload(item) for item in page.items], version)
    return _WorkloadList()


async def read_wait(client: Client, job: TrainingJob, now: datetime) -> QueueWait | None:
    """Everything about one job; None if it is not queued, or there is no Kueue."""
    if not is_queued(job):
        return None
    listed = await _list_workloads(client, job.namespace, [job.uid])
    if listed.refused:
        text = f"you may not list workloads.{KUEUE_GROUP} in namespace {job.namespace}"
        return explain_wait(job, QueueFacts(unknown=(text,)), now)
    if not listed.version:
        return None
    workload = next((one for one in listed.items if one.job_uid == job.uid), None)
    unknown: list[str] = []
    cluster_queue = await _read_cluster_queue(client, job, listed.version, unknown)
    position = await _find_position(client, job, listed.version, unknown) if workload is not None else None
    others = await _read_preemptor(client, workload)
    return explain_wait(job, QueueFacts(workload, cluster_queue, position, others, tuple(unknown)), now)


async def _read_cluster_queue(client: Client, job: TrainingJob, version: str, unknown: list[str]) -> str:
    name = get_queue(job)
    try:
        queue = await client.get(GVR(KUEUE_GROUP, version, "localqueues"), name, job.namespace)
    except StatusError as error:
        if error.code == _REFUSED:
            unknown.append(f"its ClusterQueue is not known: you may not get localqueues.{KUEUE_GROUP}")
        elif error.code not in _MISSING:
            raise
        return ""
    return read_text(read_spec(queue), "clusterQueue")


async def _find_position(client: Client, job: TrainingJob, version: str, unknown: list[str]) -> QueuePosition | None:
    """Kueue's visibility API is an API of its own, which may be off."""
    name, gvr = get_queue(job), GVR(f"visibility.{KUEUE_GROUP}", version, "localqueues")
    try:
        summary = await client.get(gvr, name, job.namespace, subresource="pendingworkloads")
    except StatusError as error:
        if error.code == _REFUSED:
            unknown.append(f"its position is not known: you may not get localqueues/pendingworkloads.{gvr.group}")
        elif error.code in _MISSING:
            unknown.append("its position is not known: Kueue's visibility API does not answer for this queue")
        else:
            raise
        return None
    return read_position(summary, job)


async def _read_preemptor(client: Client, workload: QueuedWorkload | None) -> dict[str, str]:
    uid, job_uid = read_preemptor(workload)
    if workload is None or not uid:
        return {}
    for namespace in (workload.namespace, ""):
        for other in (await _list_workloads(client, namespace, [job_uid])).items:
            if other.uid == uid:
                return {uid: other.job_label}
    return {}
