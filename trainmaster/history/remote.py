"""History on a cluster: collects the content of a record through any client, and copies the logs of Pods.

Children, events and logs are not watched but read when a job has ended, and again when its object is deleted. What the
cluster no longer has is listed in the record as a gap. If the server does not answer, StatusError or OSError is raised,
and the caller decides whether to wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOBS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import snapshots
from trainmaster.client.contract import Client, ListOptions, LogOptions
from trainmaster.history.logs import FOLDER, list_logs
from trainmaster.history.record import RecordSources
from trainmaster.jobs.kinds import find_place, read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.logs.lines import check_not_lost
from trainmaster.jobs.logs.places import list_gone
from trainmaster.jobs.lookups import find_jobset, read_parts
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.shim.log_sink import MAX_LINE, split_line

PODS_GONE = "its Pods were gone before their logs could be copied"
_STAMPED = re.compile(rb"\d{4}-\d\d-\d\dT")
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
        kept = list_logs(self._directory, uids)
        if uids and not pods and not kept:
            gaps.append(PODS_GONE)
        else:
            places = [*(log.place for log in kept), *filter(None, map(find_place, pods))]
            gaps += [gap for jobset in map(JobSet, jobsets) for gap in _list_gone(jobset, places, job)]
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
                await self._copy_log(pod, options, file)
            except StatusError as error:
                if error.reason == "ServiceUnavailable":
                    raise
                gaps.append(f"no log of {meta['name']}, container {container}, restart {restart}: {error.message}")
        return gaps

    async def _copy_log(self, pod: Object, options: LogOptions, file: Path) -> None:
        copy = await asyncio.to_thread(_Copy, file)
        try:
            async for piece in self._client.logs(pod["metadata"]["name"], pod["metadata"]["namespace"], options):
                await asyncio.to_thread(copy.add, piece)
            await asyncio.to_thread(copy.finish)
        except BaseException:
            copy.abandon()
            raise


def _list_gone(jobset: JobSet, places: Collection[PodPlace], job: TrainingJob) -> Iterator[str]:
    """What is missing because Pods were replaced or deleted before they were seen here."""
    present = [place for place in places if place.jobset == jobset.uid]
    for attempt, texts in list_gone(jobset, present, JobLogOptions(), has_ended=job.is_finished).items():
        if attempt >= jobset.first_attempt:
            yield from (f"attempt {attempt}: {text}" for text in texts)


def _list_outputs(pod: Object) -> Iterator[tuple[str, int, bool]]:
    """(container, restart, whether it is the previous one) of the logs that a kubelet still has: the last two."""
    for one in Pod(pod).all_container_statuses:
        count = int(one.get("restartCount") or 0)
        if count:
            yield one["name"], count - 1, True
        # The log of a running container is copied once it has terminated and the log is complete.
        if "terminated" in read_fields(one, "state"):
            yield one["name"], count, False


class _Copy:
    """Writes a log in the shims' format, piece by piece. The stream of each line is unknown on a cluster.

    The file gets its name when it is complete. At most one piece and the beginning of a line are held in memory.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._part = file.with_name(f".{file.name}.part")
        self._rest = b""
        self._moment = b""
        """The timestamp of a line whose beginning was written already."""
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._output = self._part.open("wb")

    def add(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._output.writelines(self._convert(line, b"F") for line in lines)
        if len(self._rest) > MAX_LINE:
            self._output.write(self._convert(self._rest, b"P"))
            self._rest = b""

    def finish(self) -> None:
        if self._rest:
            self._output.write(self._convert(self._rest, b"F"))
        self._output.close()
        self._part.replace(self._file)

    def abandon(self) -> None:
        self._output.close()
        self._part.unlink(missing_ok=True)

    def _convert(self, line: bytes, tag: bytes) -> bytes:
        """`tag` is P if the line continues in the next piece."""
        moment, text = self._moment, line
        if not moment:
            if not _STAMPED.match(line):
                check_not_lost(line)
            moment, _, text = line.partition(b" ")
        self._moment = moment if tag == b"P" else b""
        stamp = moment + b" stdout"
        return split_line(text, stamp, b"%s %s " % (stamp, tag))
