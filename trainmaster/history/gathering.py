"""Collects what a record is made of, from a view: the job's children and the events about all of them.

Events are found through an index by the uid of the object that they are about, because searching all events of a
namespace for every finished job would become slower with every job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from trainmaster.api.labels import CODE_OF, JOBSET_UID, SCRIPT_OF
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_labels
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS
from trainmaster.api.training import snapshots
from trainmaster.client.view import View
from trainmaster.engine.feed import Feed
from trainmaster.history.record import RecordSources
from trainmaster.jobs.code_files import find_code_map
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.events import ObjectEvent

Gather: TypeAlias = Callable[[Fields, Collection[str]], Awaitable[RecordSources]]
"""(the job, uids of its JobSets). Children are found by labels, because objects in between may be deleted."""


class ViewGather:
    def __init__(self, view: View, feed: Feed) -> None:
        self._view = view
        self._feed = feed
        self._events: dict[str, set[tuple[str, str]]] = {}

    async def follow(self) -> None:
        """Maintains the index of events; runs forever."""
        await self._feed.follow(EVENTS, self._notice)

    async def __call__(self, raw: Fields, known: Collection[str]) -> RecordSources:
        view, job = self._view, read_training_job(raw)
        namespace = job.namespace
        snapshot = view.find(CONFIG_MAPS, namespace, snapshots.get_name(raw)) if job.runtime else None
        if job.has_jobset:
            jobsets = list(view.owned(JOB_SETS, namespace, job.uid))
            uids_below = sorted({*known, *(jobset["metadata"]["uid"] for jobset in jobsets)})
            jobs = [one for uid in uids_below for one in view.list(JOBS, namespace, {JOBSET_UID: uid})]
            pods = [pod for uid in uids_below for pod in view.list(PODS, namespace, {JOBSET_UID: uid})]
        else:
            jobsets, jobs, pods = [], [], list(view.owned(PODS, namespace, job.uid))
        uids = [obj["metadata"]["uid"] for obj in (raw, *jobsets, *jobs, *pods)]
        return RecordSources(raw, snapshot, jobsets, jobs, pods, [event for uid in uids for event in self._list(uid)])

    def find_code(self, raw: Fields) -> Object | None:
        """The ConfigMap with the code of the job; None if it has none, or that is gone."""
        reference = find_code_map(raw)
        if reference is None:
            return None
        found = self._view.find(CONFIG_MAPS, raw["metadata"]["namespace"], reference.name)
        # The author names it; others of the namespace are none of the record's business.
        return found if found is not None and read_labels(found).keys() & {SCRIPT_OF, CODE_OF} else None

    def _list(self, uid: str) -> list[Object]:
        found = (self._view.find(EVENTS, *key) for key in sorted(self._events.get(uid, ())))
        return [event for event in found if event is not None]

    def _notice(self, event: Object) -> None:
        told = ObjectEvent(event)
        key = (told.namespace, told.name)
        uid = told.involved.get("uid")
        if not uid:
            return
        if self._view.find(EVENTS, *key) is not None:
            self._events.setdefault(uid, set()).add(key)
            return
        known = self._events.get(uid, set())
        known.discard(key)
        if not known:
            self._events.pop(uid, None)
