"""The output of a job's workers, read once for all who follow it.

The end of the output is kept in a ring of pieces, of which everybody reads at their own pace. A follower whose position
is not in the ring (it came later, or was too slow) reads for itself until it is: every piece has the position after it,
so the change is exact. The reading waits for the fastest follower, so that a long log is not read ahead of everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from trainmaster.rest.services.live.log_cursor import Batch, LogCursor
from trainmaster.rest.services.live.log_pieces import LogPiece, PieceBuilder
from trainmaster.rest.services.live.sources import Changes, Source, Sources

_RING_BYTES = 1 << 20

OpenLog = Callable[[LogCursor], AsyncGenerator[Batch, None]]
"""What comes after the position."""


class SharedLog(Source):
    def __init__(self, open_log: OpenLog, cursor: LogCursor) -> None:
        super().__init__()
        self._open = open_log
        self._head = cursor.copy()
        self._base = cursor.copy()
        """The position before the first piece of the ring."""
        self._pieces: deque[LogPiece] = deque()
        self._seats = {cursor.dump(): 0}
        """By position, the number of the piece that comes after it."""
        self._base_id = cursor.dump()
        self._bytes = 0
        self._first = 0
        self._furthest = 0
        """The number up to which somebody has read."""
        self._room = Changes()

    async def run(self) -> None:
        builder = PieceBuilder(self._head)
        async with aclosing(self._open(self._head.copy())) as batches:
            async for batch in batches:
                for piece in builder.build(batch):
                    await self._make_room(len(piece.data))
                    self._pieces.append(piece)
                    # A mark has the position of what comes before it, and is rather told twice than never.
                    self._seats.setdefault(piece.id, self._end)
                    self._bytes += len(piece.data)
                self.changes.notify()

    @property
    def _end(self) -> int:
        return self._first + len(self._pieces)

    async def _make_room(self, size: int) -> None:
        while self._pieces and self._bytes + size > _RING_BYTES:
            if self._first < self._furthest:
                self._drop_first()
            else:
                self.changes.notify()
                await self._room.next.wait()

    def _drop_first(self) -> None:
        piece = self._pieces.popleft()
        if self._seats.get(self._base_id) == self._first:
            del self._seats[self._base_id]
        self._first += 1
        self._bytes -= len(piece.data)
        self._base_id = piece.id
        self._seats.setdefault(piece.id, self._first)
        for placed in piece.items:
            self._base.note(placed.item)

    def find_seat(self, cursor: LogCursor) -> int | None:
        """The number of the piece to go on with; some of what follows may have been read already."""
        exact = self._seats.get(cursor.dump())
        if exact is not None:
            return exact
        return self._first if self._base.is_within(cursor) else None

    def _find_position(self, seat: int) -> str:
        return self._base_id if seat == self._first else self._pieces[seat - self._first - 1].id

    async def read(self, cursor: LogCursor, seat: int) -> AsyncGenerator[LogPiece, None]:
        """Ends when the ring has left this follower behind, or with the log. The cursor moves with every piece."""
        own = PieceBuilder(cursor)
        is_level = self._find_position(seat) == cursor.dump()
        while seat >= self._first:
            if seat == self._end:
                self.check()
                if self.has_ended:
                    return
                await self.changes.next.wait()
                continue
            piece = self._pieces[seat - self._first]
            seat += 1
            self._note_reader(seat)
            if is_level:
                # Parsed only when it is needed: almost always the next piece follows.
                cursor.mark = piece.id
                yield piece
                continue
            left = [placed.item for placed in piece.items if not cursor.covers(placed)]
            for rest in own.build(left):
                yield rest
            is_level = cursor.dump() == piece.id

    def _note_reader(self, seat: int) -> None:
        if seat > self._furthest:
            self._furthest = seat
            self._room.notify()


@dataclass(frozen=True, slots=True)
class LogKey:
    """Which log: whoever has the same rights and wants the same shares it."""

    rights: Hashable
    uid: str
    wanted: Hashable


async def follow_log(
    sources: Sources, key: LogKey, open_log: OpenLog, cursor: LogCursor
) -> AsyncGenerator[Sequence[LogPiece], None]:
    """Everything after the cursor, which moves along, until the end of the job."""
    while not cursor.over:
        async with sources.using(SharedLog, key, lambda: SharedLog(open_log, cursor)) as shared:
            try:
                async with aclosing(_follow_shared(shared, open_log, cursor)) as pieces:
                    async for found in pieces:
                        yield found
            except Exception as error:
                # It may be the right of the one who opened it that ended: read with our own.
                if shared.failure is not error:
                    raise
                async with aclosing(_read_alone(open_log, cursor)) as alone:
                    async for found in alone:
                        yield found


async def _follow_shared(
    shared: SharedLog, open_log: OpenLog, cursor: LogCursor
) -> AsyncGenerator[Sequence[LogPiece], None]:
    while not cursor.over:
        cursor.settle()
        seat = shared.find_seat(cursor)
        if seat is None:
            async with aclosing(_read_alone(open_log, cursor)) as alone:
                async for found in alone:
                    yield found
                    if shared.find_seat(cursor) is not None:
                        break
            continue
        async with aclosing(shared.read(cursor, seat)) as pieces:
            async for piece in pieces:
                yield (piece,)
        cursor.settle()
        if shared.has_ended:
            return


async def _read_alone(open_log: OpenLog, cursor: LogCursor) -> AsyncGenerator[Sequence[LogPiece], None]:
    cursor.settle()
    builder = PieceBuilder(cursor)
    async with aclosing(open_log(cursor.copy())) as batches:
        async for batch in batches:
            if pieces := builder.build(batch):
                yield pieces
