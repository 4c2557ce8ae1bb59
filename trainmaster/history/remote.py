"""History on a cluster: collects the content of a record through any client, and copies the logs of Pods.

Children, events and logs are not watched but read when a job has ended, and again when its object is deleted. What the
cluster no longer has is listed in the record as a gap. If the server does not answer, StatusError or OSError is raised,
and the caller decides whether to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOBS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import snapshots
from trainmaster.client.contract import Client, ListOptions, LogOptions
from trainmaster.history.logs import FOLDER
from trainmaster.history.record import RecordSources
from trainmaster.jobs.kinds import find_place, read_training_job
from trainmaster.jobs.lookups import find_jobset, read_parts
from trainmaster.jobs.models.pods import Pod

PODS_GONE = "its Pods were gone before their logs could be copied"
_MOST_EVENTS_OF = 100
"""The maximum number of objects whose events are requested, one request each: the job and JobSets first, Pods last."""


class ClientGather:
    """Implements `history.gathering.Gather`. `directory` is the archive's."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._client = client
        self._directory = directory

    async def __call__(self, raw: Fields, known: Collection[str]) -> RecordSources:
        job = read_training_job(raw)
        namespace = job.namespace
        snapshot = await self._find(CONFIG_MAPS, namespace, snapshots.get_name(raw)) if job.runtime else None
        jobsets: list[Object] = []
        jobs: list[Object] = []
        if job.has_jobset:
            jobset = await find_jobset(self._client, job)
            jobsets = [] if jobset is None else [dict(jobset.raw)]
            uids = sorted({*known, *(one["metadata"]["uid"] for one in jobsets)})
            jobs = [one for uid in uids for one in await self._list_of(JOBS, namespace, uid)]
            pods = [pod for uid in uids for pod in await self._list_of(PODS, namespace, uid)]
        else:
            uids, pods = [job.uid], (await read_parts(self._client, job)).pods
        gaps = [gap for pod in pods for gap in await self._copy_logs(pod)]
        if uids and not pods and not any((self._directory / FOLDER / uid).exists() for uid in uids):
            gaps.append(PODS_GONE)
        events = await self._list_events(namespace, [raw, *jobsets, *jobs, *pods])
        return RecordSources(raw, snapshot, jobsets, jobs, pods, events, gaps)

    async def _find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        try:
            return await self._client.get(gvr, name, namespace)
        except NotFound:
            return None

    async def _list_of(self, gvr: GVR, namespace: str, jobset: str) -> Sequence[Object]:
        return (await self._client.list(gvr, namespace, ListOptions(label_selector=f"{JOBSET_UID}={jobset}"))).items

    async def _list_events(self, namespace: str, about: Sequence[Fields]) -> list[Object]:
        found: list[Object] = []
        for obj in about[:_MOST_EVENTS_OF]:
            options = ListOptions(field_selector=f"involvedObject.uid={obj['metadata']['uid']}")
            found += (await self._client.list(EVENTS, namespace, options)).items
        return found

    async def _copy_logs(self, pod: Object) -> list[str]:
        """Returns what could not be copied. Logs that exist already are not requested again."""
        place = find_place(pod)
        if place is None:
            return []
        meta, gaps = pod["metadata"], []
        for container, restart, previous in _list_outputs(pod):
            file = self._directory / FOLDER / str(place) / f"{container}.{restart}.log"
            if file.exists():
                continue
            options = LogOptions(container=container, previous=previous, timestamps=True)
            try:
                raw = b"".join([piece async for piece in self._client.logs(meta["name"], meta["namespace"], options)])
            except StatusError as error:
                if error.reason == "ServiceUnavailable":
                    raise
                gaps.append(f"no log of {meta['name']}, container {container}, restart {restart}: {error.message}")
                continue
            await asyncio.to_thread(_write, file, raw)
        return gaps


def _list_outputs(pod: Object) -> Iterator[tuple[str, int, bool]]:
    """(container, restart, whether it is the previous one) of the logs that a kubelet still has: the last two."""
    for one in Pod(pod).all_container_statuses:
        count = int(one.get("restartCount") or 0)
        if count:
            yield one["name"], count - 1, True
        # The log of a running container is copied once it has terminated and the log is complete.
        if "terminated" in read_fields(one, "state"):
            yield one["name"], count, False


def _write(file: Path, raw: bytes) -> None:
    """Writes the shims' format, atomically. The stream of each line is unknown on a cluster."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = []
    for line in raw.splitlines():
        moment, _, text = line.partition(b" ")
        lines.append(b"%s stdout F %s\n" % (moment, text))
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(b"".join(lines))
    part.replace(file)
