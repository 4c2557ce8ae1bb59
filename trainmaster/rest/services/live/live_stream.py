"""Several topics as one stream (docs/rest.md, "One stream for everything").

Every topic has a task that follows its source; all put what they get into one short queue, so a slow client stops its
own tasks only. The id of an event contains the positions in all topics as this client has received them, so that coming
again with it brings what is missing in each. A topic that cannot go on ends with a `problem`, and the others go on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import orjson

from trainmaster.api.status import StatusError
from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import Caller
from trainmaster.rest.contract import Backend
from trainmaster.rest.problems import Problem, from_status
from trainmaster.rest.services.jobs import check_worker, get_job
from trainmaster.rest.services.live import follow_jobs as table
from trainmaster.rest.services.live import job_details, job_events, log_access, log_cursor
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_usage import follow_usage
from trainmaster.rest.services.live.machine_state import follow_machine
from trainmaster.rest.services.live.topics import Topic, TopicPositions
from trainmaster.rest.services.namespaces import check_reader, list_readable
from trainmaster.rest.services.streams import encode_raw

_QUEUE = 8
_LAST = {"jobs": "", "machine": "", "job": "gone", "log": "end", "usage": "end"}
"""The event after which nothing comes of a topic."""


@dataclass(frozen=True, slots=True)
class TopicFrame:
    topic: Topic
    slot: str
    kind: str
    data: bytes
    position: str


@dataclass(frozen=True, slots=True)
class LogWish:
    """How the topics `log:` are read."""

    worker: int | None = None
    attempt: int | None = None
    tail_lines: int | None = None


@dataclass
class LiveStream:
    caller: Caller
    backend: Backend
    topics: Sequence[Topic]
    positions: TopicPositions
    namespace: str | None = None
    """Of the topic `jobs`; None is all that the caller may read."""
    log: LogWish = field(default_factory=LogWish)

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[Sequence[TopicFrame] | None] = asyncio.Queue(_QUEUE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, Problem] = {}
        self._spaces: Sequence[str] = ()
        """Of the topics without a namespace of their own."""

    @property
    def is_over(self) -> bool:
        return all(self.positions.is_over(topic.text) for topic in self.topics)

    async def watch(self) -> AsyncGenerator[Sequence[TopicFrame], None]:
        follow = {
            "jobs": self._follow_jobs,
            "machine": self._follow_machine,
            "job": self._follow_job,
            "log": self._follow_log,
            "usage": self._follow_usage,
        }
        topics = [topic for topic in self.topics if not self.positions.is_over(topic.text)]
        async with Scope("rest.live") as scope:
            for topic in topics:
                work = self._run(topic, follow[topic.what])
                self._tasks[topic.text] = scope.spawn(work, name=f"rest.live.{topic.what}")
            left = len(topics)
            while left:
                frames = await self._queue.get()
                if frames is None:
                    left -= 1
                else:
                    yield frames

    async def _run(self, topic: Topic, follow: Callable[[Topic], Awaitable[None]]) -> None:
        problem: Problem | None = None
        try:
            await follow(topic)
        except asyncio.CancelledError:
            if topic.text not in self._refused:
                raise
            problem = self._refused[topic.text]
        except StatusError as error:
            problem = from_status(error)
        except OSError:
            problem = Problem(503, "unavailable", "the server behind does not answer")
        except Problem as error:
            problem = error
        if problem is not None:
            await self._queue.put([TopicFrame(topic, topic.text, "problem", orjson.dumps(problem.to_data()), "")])
        await self._queue.put(None)

    async def check(self, caller: Caller) -> None:
        """Ends the topics of namespaces whose jobs the caller may no longer read. `caller`: as they are now."""
        rights: dict[str, Problem | None] = {}
        for topic in self.topics:
            for space in (topic.namespace,) if topic.namespace else self._spaces:
                if space not in rights:
                    rights[space] = await _find_refusal(caller, space)
                problem, task = rights[space], self._tasks.get(topic.text)
                if problem is not None and task is not None and not task.done() and topic.text not in self._refused:
                    self._refused[topic.text] = problem
                    task.cancel()

    def encode(self, batches: Sequence[Sequence[TopicFrame]]) -> bytes:
        return b"".join(map(self._encode, itertools.chain.from_iterable(batches)))

    def _encode(self, frame: TopicFrame) -> bytes:
        text = frame.topic.text
        if frame.kind == _LAST[frame.topic.what] or frame.kind == "problem":
            self.positions.end(text)
        elif text in self._refused:
            # Queued before the right ended.
            return b""
        else:
            self.positions.note(frame.slot, frame.position)
        head, rest = b'{"topic":%b' % orjson.dumps(text), frame.data[1:]
        return encode_raw(frame.kind, head + (b"," if rest != b"}" else b"") + rest, self.positions.dump())

    # Topics

    async def _follow_jobs(self, topic: Topic) -> None:
        caller, backend = self.caller, self.backend
        cursor = table.parse_cursor(self.positions.get(topic.text))
        spaces = await self._choose_spaces()
        source = table.follow_jobs(backend.sources, caller, backend.clock, backend.ids, spaces, cursor)
        async with aclosing(source):
            async for items in source:
                await self._put(topic, topic.text, items)

    async def _follow_machine(self, topic: Topic) -> None:
        caller, backend = self.caller, self.backend
        spaces = await self._choose_spaces()
        if len(spaces) != 1:
            hint = "name one of them with namespace="
            raise Problem(422, "invalid", f"you may read jobs in {len(spaces)} namespaces", hint=hint)
        readers, known = (backend.nodes, backend.queue), self.positions.get(topic.text)
        source = follow_machine(backend.sources, caller, backend.clock, readers, spaces[0], known)
        async with aclosing(source):
            async for item in source:
                await self._put(topic, topic.text, [item])

    async def _choose_spaces(self) -> Sequence[str]:
        """For the topics without a namespace of their own. Raises StatusError 403."""
        spaces = await list_readable(self.caller) if self.namespace is None else (self.namespace,)
        for space in spaces:
            await check_reader(self.caller, space)
        self._spaces = spaces
        return spaces

    async def _follow_job(self, topic: Topic) -> None:
        caller, backend = self.caller, self.backend
        more = f"{topic.text}+"
        details = job_details.parse_cursor(self.positions.get(topic.text))
        events = job_events.parse_cursor(self.positions.get(more))
        job = await self._find_job(topic, details.uid)
        if job is None:
            await self._put(topic, topic.text, [job_details.build_gone(details, "Deleted")])
            return

        async def follow_events() -> None:
            found = job_events.follow_events(backend.sources, caller, backend.clock, job, events)
            async with aclosing(found):
                async for item in found:
                    # States are part of the details.
                    if item.kind == "event":
                        await self._put(topic, more, [replace(item, data=b'{"event":%b}' % item.data)])

        async with Scope("rest.live.job") as scope:
            scope.spawn(follow_events(), name="rest.live.events")
            source = job_details.follow_details(backend.sources, caller, backend.clock, job, details)
            async with aclosing(source):
                async for item in source:
                    await self._put(topic, topic.text, [item])

    async def _find_job(self, topic: Topic, uid: str) -> TrainingJob | None:
        """None if the client knows it, and it is gone. Raises Problem 404 if nobody knows it."""
        try:
            job = await get_job(self.caller.client, topic.namespace, topic.reference)
        except Problem as problem:
            if problem.status == 404 and uid:
                return None
            raise
        return job if uid in ("", job.uid) else None

    async def _follow_log(self, topic: Topic) -> None:
        caller, backend, kept = self.caller, self.backend, self.backend.history.kept
        cursor = log_cursor.parse_cursor(self.positions.get(topic.text))
        found = await backend.reader.find(caller.client, topic.namespace, topic.reference)
        job = read_training_job(found.document["trainjob"]) if isinstance(found, JobRecord) else found
        log_cursor.check_job(job.uid, cursor.uid)
        await check_worker(caller.client, job, self.log.worker, most=log_access.MOST_WORKERS)
        wanted = JobLogOptions(follow=True, rank=self.log.worker, attempt=self.log.attempt)
        if not cursor.uid and self.log.tail_lines is not None:
            cursor = await self._locate_tail(found, job, wanted, self.log.tail_lines)
        if isinstance(found, JobRecord):
            source = log_access.follow_record_log(backend.sources, caller, found, wanted, kept, cursor)
        else:
            source = log_access.follow_job_log(backend.sources, caller, backend.clock, found, wanted, kept, cursor)
        async with aclosing(source):
            async for pieces in source:
                await self._put(topic, topic.text, [LiveItem(piece.kind, piece.data, piece.id) for piece in pieces])

    async def _locate_tail(
        self, found: TrainingJob | JobRecord, job: TrainingJob, wanted: JobLogOptions, most: int
    ) -> log_cursor.LogCursor:
        caller, windows, kept = self.caller, self.backend.log_windows, self.backend.history.kept
        if isinstance(found, JobRecord):
            return await windows.locate_tail(await windows.open_record(found, wanted, kept), job.uid, most)
        if windows.has_files:
            return await windows.locate_tail(await windows.open_job(caller, job, wanted, kept), job.uid, most)
        return await log_access.locate_tail(caller.client, self.backend.clock, found, wanted, kept, most)

    async def _follow_usage(self, topic: Topic) -> None:
        caller, backend = self.caller, self.backend
        job = await get_job(caller.client, topic.namespace, topic.reference)
        source = follow_usage(backend.sources, caller, backend.clock, job, backend.usage.measure)
        async with aclosing(source):
            async for item in source:
                await self._put(topic, topic.text, [item])

    async def _put(self, topic: Topic, slot: str, items: Sequence[LiveItem]) -> None:
        await self._queue.put([TopicFrame(topic, slot, item.kind, item.data, item.id) for item in items])


async def _find_refusal(caller: Caller, namespace: str) -> Problem | None:
    """Why the caller may not read jobs there. A temporary failure of the server does not affect the permission."""
    try:
        await check_reader(caller, namespace)
    except StatusError as error:
        return from_status(error) if error.code in (401, 403) else None
    except OSError:
        return None
    return None
