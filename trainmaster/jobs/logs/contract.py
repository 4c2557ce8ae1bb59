"""What a stream of a job's logs is made of: lines and marks, what is wanted of them, and how far it was read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from trainmaster.api.status import StatusError
from trainmaster.jobs.logs.lines import Position, Stamped
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.kit.clock import Clock

ATTEMPT, GAP, WAITING, TROUBLE = "attempt", "gap", "waiting", "trouble"
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5)
"""Seconds. A node keeps a Pod's logs just after its object has gone; the archive learns of JobSets a second late."""


@dataclass(frozen=True, slots=True)
class Line:
    attempt: int
    """Of the gang, from 0."""
    job: str
    """The replicated job: `node`, `launcher`, `dataset-initializer`."""
    rank: int
    """The node within that job, from 0."""
    container: str
    time: str
    """RFC 3339 with nanoseconds; "" when nobody knows."""
    raw: bytes
    """As it was printed, without the line break."""
    restart: int = 0
    """Of the container within its Pod."""
    pod: str = ""

    @property
    def text(self) -> str:
        return self.raw.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class LogMark:
    """Something that no process printed."""

    kind: str
    """`attempt`: another attempt begins; `gap`: something is missing; `waiting`: why nothing runs yet; `trouble`: the
    server does not answer, and is asked again."""
    attempt: int
    text: str


Entry: TypeAlias = Line | LogMark


@dataclass(frozen=True, slots=True)
class JobLogOptions:
    follow: bool = False
    attempt: int | None = None
    """Only this one; None is all."""
    last_attempt: bool = False
    """Nothing that is older than the newest attempt at the beginning."""
    rank: int | None = None
    job: str = ""
    container: str = ""
    since_time: str = ""
    tail: int | None = None
    """So many lines of each container at the beginning; None is all."""

    def fits(self, place: PodPlace, container: str = "") -> bool:
        return (
            self.attempt in (None, place.attempt)
            and self.rank in (None, place.index)
            and self.job in ("", place.job)
            and (not container or self.container in ("", container))
        )


class KeptLog(Protocol):
    """The output of one run of one container of a Pod that may be gone."""

    @property
    def place(self) -> PodPlace: ...

    @property
    def container(self) -> str: ...

    @property
    def restart(self) -> int: ...


class Kept(Protocol):
    """Logs that outlived their Pods: `trainmaster.history.kept_logs`."""

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        """Of the job with that uid; `jobsets` are uids that the caller knows besides."""
        ...

    def read(self, log: KeptLog) -> Iterator[Stamped]: ...


class NothingKept:
    """On a cluster."""

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        return ()

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        return iter(())


async def await_kept(clock: Clock, kept: Kept, job: str, jobsets: Collection[str], attempts: Collection[int]) -> None:
    """Returns when something was kept of each of these attempts, or soon after: some have left nothing."""
    if isinstance(kept, NothingKept):
        return
    for pause in _PAUSES if attempts else ():
        if {log.place.attempt for log in kept.list_logs(job, jobsets)}.issuperset(attempts):
            return
        await clock.sleep(pause)


class Positions:
    """How far every log was read, by Pod and container. Shared by the beginning and the following."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Position] = {}
        self._done: set[tuple[str, str, int]] = set()
        self.attempt: int | None = None
        """The newest that a line or mark was handed out of."""
        self.floor = 0
        """Attempts before it were handed out whole."""

    @classmethod
    def resume(cls, attempt: int, known: Mapping[tuple[str, str], Position]) -> Positions:
        """Where another stream ended: in that attempt, with so much of each (Pod, container) handed out."""
        positions = cls()
        positions.attempt = positions.floor = attempt
        # Copies: readers move them on before anything is handed out.
        positions._known = {key: replace(position) for key, position in known.items()}
        return positions

    def find(self, place: PodPlace, container: str) -> Position | None:
        return self._known.get((place.pod, container))

    def get(self, place: PodPlace, container: str) -> Position:
        return self._known.setdefault((place.pod, container), Position(restart=-1))

    def finish(self, place: PodPlace, container: str, restart: int) -> None:
        self._done.add((place.pod, container, restart))

    def is_finished(self, place: PodPlace, container: str, restart: int) -> bool:
        """Whether that run was read to its end, or a later one was begun."""
        position = self._known.get((place.pod, container))
        return (place.pod, container, restart) in self._done or (position is not None and position.restart > restart)


def is_passing(error: Exception) -> bool:
    """Whether asking again may help."""
    return not isinstance(error, StatusError) or error.code >= 500 or error.code == 429
