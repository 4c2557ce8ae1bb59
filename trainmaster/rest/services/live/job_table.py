"""All jobs that a caller may read, as rows that are encoded once, in the order of their last change.

A follower remembers the number of the last change it has seen, and gets the rows with a later one: each once, as it is
now, however often it changed. Deleted jobs leave a note. A follower that has missed more of them than are kept, or
comes from another table (the server was restarted), begins again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import orjson

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ListOptions, ObjectList, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.client.pages import read_pages
from trainmaster.jobs.kinds import TRAINING_KINDS, get_kind_name
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import SeenClient
from trainmaster.rest.services.live.job_rows import build_row
from trainmaster.rest.services.live.sources import Source

PAGE = 500
"""The maximum number of objects of one request."""
_KEPT_NOTES = 10_000
_LONGEST_PAUSE = 30.0

Place = tuple[str, str, str]
"""(kind, namespace, name)"""


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    """That of its last change."""
    data: bytes
    uid: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Gone:
    number: int
    data: bytes


TableChange = Row | Gone
Numbered = TypeVar("Numbered", Row, Gone)


class JobTable(Source):
    linger_seconds: ClassVar[float] = 30.0

    def __init__(self, client: SeenClient, clock: Clock, uid: str, namespaces: Sequence[str]) -> None:
        """`uid` identifies the table in ids; `namespaces`: ("",) is all."""
        super().__init__()
        self.uid = uid
        self.number = 0
        """That of the last change."""
        self.notes_since = 0
        """All later deletions are in the notes."""
        self._client = client
        self._clock = clock
        self._namespaces = namespaces
        self._rows: OrderedDict[Place, Row] = OrderedDict()
        """The last changed at the end."""
        self._notes: deque[Gone] = deque()
        self._unread = {(kind, namespace) for kind in TRAINING_KINDS for namespace in namespaces}
        """What was not listed completely yet."""

    @property
    def is_complete(self) -> bool:
        return not self._unread

    def __len__(self) -> int:
        return len(self._rows)

    async def run(self) -> None:
        models = sorted(TRAINING_KINDS.values(), key=_comes_later)
        parts = [_Part(self, self._client, model, namespace) for model in models for namespace in self._namespaces]
        async with Scope("rest.jobs") as scope:
            await asyncio.gather(*(scope.spawn(part.run(self._clock), name="rest.jobs.part") for part in parts))

    # What followers read

    def list_newest(self) -> list[bytes]:
        """All rows, the newest jobs first."""
        return [row.data for row in sorted(self._rows.values(), key=_get_creation, reverse=True)]

    def list_since(self, number: int) -> list[TableChange]:
        """What has changed after this number, in that order."""
        found: list[TableChange] = [*_take_later(reversed(self._rows.values()), number)]
        found += _take_later(reversed(self._notes), number)
        return sorted(found, key=_get_number)

    # What its parts have seen

    def put(self, job: TrainingJob) -> Place:
        place = get_kind_name(type(job)), job.namespace, job.name
        known, data = self._rows.get(place), orjson.dumps(build_row(job))
        if known is not None and known.uid != job.uid:
            self.remove(place)
        elif known is not None and known.data == data:
            return place
        self.number += 1
        self._rows[place] = Row(self.number, data, job.uid, job.created_at)
        self._rows.move_to_end(place)
        return place

    def remove(self, place: Place) -> None:
        row = self._rows.pop(place, None)
        if row is None:
            return
        kind, namespace, name = place
        self.number += 1
        identity = {"namespace": namespace, "name": name, "uid": row.uid, "kind": kind}
        self._notes.append(Gone(self.number, orjson.dumps(identity)))
        if len(self._notes) > _KEPT_NOTES:
            self.notes_since = self._notes.popleft().number

    def complete(self, kind: str, namespace: str, seen: set[Place]) -> None:
        """A list has ended: what is not in it is gone."""
        ours = [place for place in self._rows if place[0] == kind and namespace in ("", place[1])]
        for place in ours:
            if place not in seen:
                self.remove(place)
        self._unread.discard((kind, namespace))
        self.changes.notify()


class _Part:
    """Lists and watches one kind in one namespace. As a `ListWatch` it lists page by page, each of which is shown at
    once."""

    def __init__(self, table: JobTable, client: SeenClient, model: type[TrainingJob], namespace: str) -> None:
        self._table = table
        self._client = client
        self._model = model
        self._kind = get_kind_name(model)
        self._namespace = namespace
        self._seen: set[Place] = set()
        self.watch = client.watch

    async def run(self, clock: Clock) -> None:
        await follow(
            self,
            clock,
            self._model.gvr,
            self._begin,
            self._change,
            namespace=self._namespace,
            trouble=self._hear_trouble,
            longest_pause=_LONGEST_PAUSE,
        )

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        self._seen, version = set(), ""
        async for page in read_pages(self._client, gvr, namespace, ListOptions(limit=PAGE)):
            await self._client.settle()
            self._seen.update(self._table.put(self._model(item)) for item in page.items)
            self._table.changes.notify()
            version = version or page.resource_version
            # Others have their turn between two pages.
            await asyncio.sleep(0)
        return ObjectList([], version)

    async def _begin(self, items: Sequence[Object]) -> None:
        self._table.complete(self._kind, self._namespace, self._seen)
        self._seen = set()

    async def _change(self, event: WatchEvent) -> None:
        await self._client.settle()
        job = self._model(event.object)
        if event.type == "DELETED":
            self._table.remove((self._kind, job.namespace, job.name))
        else:
            self._table.put(job)
        self._table.changes.notify()

    def _hear_trouble(self, error: Exception) -> None:
        """A cluster may not have the v1 kinds, or the caller no right to them."""
        if not isinstance(error, StatusError) or error.code not in (401, 403, 404):
            return
        if error.code == 401 or self._model.gvr == TRAIN_JOBS:
            raise error
        self._table.complete(self._kind, self._namespace, set())


def _comes_later(model: type[TrainingJob]) -> bool:
    """TrainJobs are read first."""
    return model.gvr != TRAIN_JOBS


def _take_later(changes: Iterable[Numbered], number: int) -> Iterator[Numbered]:
    """`changes` from the last one on."""
    for change in changes:
        if change.number <= number:
            return
        yield change


def _get_number(change: TableChange) -> int:
    return change.number


def _get_creation(row: Row) -> tuple[str, int]:
    return row.created_at, row.number
