"""The types of a job's log stream: lines and marks, the options, and the positions reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from trainmaster.api.status import StatusError
from trainmaster.jobs.logs.lines import Position, Stamped
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.kit.clock import Clock

ATTEMPT, GAP, WAITING, TROUBLE = "attempt", "gap", "waiting", "trouble"
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5)
"""Seconds. A node keeps a Pod's logs just after the Pod is deleted; the archive learns of JobSets a second late."""


@dataclass(frozen=True, slots=True)
class Line:
    attempt: int
    """The attempt of the gang, from 0; always 0 for a v1 job."""
    job: str
    """The replicated job (`node`, `launcher`, `dataset-initializer`) or the replica type."""
    rank: int
    """The node within that job, from 0."""
    container: str
    time: str
    """RFC 3339 with nanoseconds; "" if unknown."""
    raw: bytes
    """As it was printed, without the line break."""
    restart: int = 0
    """The restart of the container within its Pod."""
    pod: str = ""
    """Identifies the Pod: `PodPlace.id`."""

    @property
    def text(self) -> str:
        return self.raw.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class LogMark:
    """A remark that no process printed."""

    kind: str
    """`attempt`: another attempt begins; `gap`: something is missing; `waiting`: why nothing is running yet; `trouble`:
    the server does not answer and is retried."""
    attempt: int
    text: str


Entry: TypeAlias = Line | LogMark


@dataclass(frozen=True, slots=True)
class JobLogOptions:
    follow: bool = False
    attempt: int | None = None
    """Only this attempt; None for all."""
    last_attempt: bool = False
    """Skip attempts before the newest one at the start of the stream."""
    rank: int | None = None
    job: str = ""
    container: str = ""
    since_time: str = ""
    tail: int | None = None
    """The number of existing lines to return per rank and attempt; None for all."""

    def fits(self, place: PodPlace, container: str = "") -> bool:
        return (
            self.attempt in (None, place.attempt)
            and self.rank in (None, place.index)
            and self.job in ("", place.job)
            and (not container or self.container in ("", container))
        )


class KeptLog(Protocol):
    """The output of one run of a container, whose Pod may be deleted."""

    @property
    def place(self) -> PodPlace: ...

    @property
    def container(self) -> str: ...

    @property
    def restart(self) -> int: ...


class Kept(Protocol):
    """Logs of deleted Pods: `trainmaster.history.kept_logs`."""

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        """The logs of the job with this uid; `jobsets` are further uids that the caller knows."""
        ...

    def read(self, log: KeptLog) -> Iterator[Stamped]: ...


class NothingKept:
    """For a cluster, where no logs are kept."""

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        return ()

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        return iter(())


async def await_kept(
    clock: Clock, kept: Kept, job: str, jobsets: Collection[str], has_all: Callable[[list[PodPlace]], bool]
) -> None:
    """Waits until all logs that the caller expects are kept, but not for long, because a Pod may have no logs."""
    if isinstance(kept, NothingKept):
        return
    for pause in _PAUSES:
        if has_all([log.place for log in kept.list_logs(job, jobsets)]):
            return
        await clock.sleep(pause)


async def await_rounds(clock: Clock, kept: Kept, job: str, jobsets: Collection[str], rounds: Collection[int]) -> None:
    """Waits until a log of each of these attempts is kept."""
    if rounds:
        await await_kept(clock, kept, job, jobsets, lambda places: {one.round for one in places}.issuperset(rounds))


class Positions:
    """How far each log was read, by Pod (`PodPlace.id`) and container. Shared by `beginning` and `following`."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Position] = {}
        self._done: set[tuple[str, str, int]] = set()
        self.attempt: int | None = None
        """The newest attempt of which a line or mark was returned."""
        self.floor = 0
        """All attempts before this one were returned completely."""

    @classmethod
    def resume(cls, attempt: int, known: Mapping[tuple[str, str], Position]) -> Positions:
        """Continues where another stream ended: in this attempt, with these positions by (Pod, container)."""
        positions = cls()
        positions.attempt = positions.floor = attempt
        # Copies, because readers advance them before anything is returned.
        positions._known = {key: replace(position) for key, position in known.items()}
        return positions

    def find(self, place: PodPlace, container: str) -> Position | None:
        return self._known.get((place.id, container))

    def get(self, place: PodPlace, container: str) -> Position:
        return self._known.setdefault((place.id, container), Position(restart=-1))

    def finish(self, place: PodPlace, container: str, restart: int) -> None:
        self._done.add((place.id, container, restart))

    def is_finished(self, place: PodPlace, container: str, restart: int) -> bool:
        """Whether the run was read to its end, or a later one was started."""
        position = self._known.get((place.id, container))
        return (place.id, container, restart) in self._done or (position is not None and position.restart > restart)


@dataclass(frozen=True, slots=True)
class ReaderTurn:
    """When the reader of a container may start."""

    attempt: tuple[int, int]
    """(JobSet, attempt)"""
    seat: tuple[str, int, int]
    container: str
    number: int

    def comes_before(self, other: ReaderTurn) -> bool:
        if self.attempt != other.attempt:
            return self.attempt < other.attempt
        return (self.seat, self.container) == (other.seat, other.container) and self.number < other.number


def is_passing(error: Exception) -> bool:
    """Whether retrying may help."""
    return not isinstance(error, StatusError) or error.code >= 500 or error.code == 429
