"""One reading of a log for many followers: each gets every line once, wherever it begins and however slow it is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from trainmaster.api.status import StatusError
from trainmaster.jobs.logs.contract import WAITING, Line, LogMark
from trainmaster.jobs.logs.lines import Position
from trainmaster.kit.scopes import Scope
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.live import shared_log
from trainmaster.rest.services.live.log_cursor import Batch, LogCursor, StreamEnd, parse_cursor
from trainmaster.rest.services.live.log_pieces import PieceBuilder
from trainmaster.rest.services.live.shared_log import LogKey, follow_log
from trainmaster.rest.services.live.sources import Source, Sources
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

KEY = LogKey("ann", "u1", None)
PODS = ("p0", "p1", "p2")


def build_line(pod: str, number: int, attempt: int = 0) -> Line:
    # Three lines of each moment.
    time = f"2026-01-01T00:00:00.{number // 3:09d}Z"
    return Line(attempt, "node", int(pod[1:]), "main", time, b"%d" % number, 0, pod)


@dataclass
class World:
    """A job that prints; every reading of it merges the Pods in another order."""

    random: random.Random
    lines: list[list[Line]] = field(default_factory=lambda: [[] for _ in PODS])
    has_ended: bool = False
    readers: int = 0
    most_readers: int = 0

    def print(self, pod: int, count: int) -> None:
        found = self.lines[pod]
        found += [build_line(PODS[pod], len(found) + number) for number in range(count)]

    async def open(self, cursor: LogCursor) -> AsyncGenerator[Batch, None]:
        at = [self._find_start(cursor, pod) for pod in PODS]
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        try:
            while True:
                left = [pod for pod in range(len(PODS)) if at[pod] < len(self.lines[pod])]
                if left:
                    pod = self.random.choice(left)
                    end = min(len(self.lines[pod]), at[pod] + self.random.randint(1, 5))
                    batch = self.lines[pod][at[pod] : end]
                    at[pod] = end
                    yield batch
                elif self.has_ended:
                    yield [StreamEnd("Complete")]
                    return
                await asyncio.sleep(self.random.random() / 10)
        finally:
            self.readers -= 1

    @staticmethod
    def _find_start(cursor: LogCursor, pod: str) -> int:
        position = cursor.known.get((pod, "main"), Position())
        return 0 if not position.time else int(position.time[20:29]) * 3 + position.same


@dataclass
class Reader:
    world: World
    seen: dict[str, list[int]] = field(default_factory=lambda: {pod: [] for pod in PODS})
    last_id: str = ""
    ends: int = 0

    async def read(self, sources: Sources, slowness: float) -> None:
        while not self.ends:
            cursor = parse_cursor(self.last_id)
            cursor.uid = "u1"
            left = self.world.random.randint(1, 60)
            async with aclosing(follow_log(sources, KEY, self.world.open, cursor)) as found:
                async for pieces in found:
                    for piece in pieces:
                        self.last_id = piece.id
                        self.ends += piece.kind == "end"
                        for placed in piece.items:
                            if isinstance(placed.item, Line):
                                self.seen[placed.item.pod].append(int(placed.item.raw))
                    left -= len(pieces)
                    await asyncio.sleep(slowness * self.world.random.random())
                    if left <= 0:
                        break  # the client is cut off, and comes again


@pytest.mark.parametrize("seed", range(12))
def test_everybody_gets_every_line_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_log, "_RING_BYTES", 3000)

    async def main() -> None:
        world = World(random.Random(seed))
        clock = VirtualClock()
        sources = Sources(clock)
        readers = [Reader(world) for _ in range(8)]
        async with Scope("test") as scope:
            scope.spawn_forever(sources.run(), name="sources")
            await asyncio.sleep(0)
            tasks = []
            for number, reader in enumerate(readers):
                tasks.append(scope.spawn(reader.read(sources, number * 0.05), name=f"reader {number}"))
                for _ in range(3):
                    world.print(world.random.randrange(3), world.random.randint(1, 40))
                    await asyncio.sleep(world.random.random())
            await asyncio.sleep(5)
            world.has_ended = True
            await asyncio.gather(*tasks)
            assert sources.count == 0
        for reader in readers:
            assert reader.ends == 1
            for pod, lines in zip(PODS, world.lines, strict=True):
                assert reader.seen[pod] == list(range(len(lines)))
        assert world.readers == 0

    run_virtual(main(), limit=86_400)


def test_followers_that_keep_up_share_one_reading() -> None:
    async def main() -> None:
        world = World(random.Random(1))
        sources, readers = Sources(VirtualClock()), [Reader(world) for _ in range(30)]
        async with Scope("test") as scope:
            scope.spawn_forever(sources.run(), name="sources")
            await asyncio.sleep(0)

            async def read(reader: Reader) -> None:
                async with aclosing(follow_log(sources, KEY, world.open, LogCursor("u1"))) as found:
                    async for pieces in found:
                        reader.ends += sum(piece.kind == "end" for piece in pieces)

            tasks = [scope.spawn(read(reader), name="reader") for reader in readers]
            for _ in range(10):
                world.print(0, 5)
                await asyncio.sleep(1)
            world.has_ended = True
            await asyncio.gather(*tasks)
        assert world.most_readers == 1
        assert [reader.ends for reader in readers] == [1] * 30

    run_virtual(main(), limit=3600)


def test_whoever_opened_the_log_and_lost_the_right_does_not_end_it_for_others() -> None:
    async def main() -> None:
        world = World(random.Random(1), has_ended=True)
        world.print(0, 10)
        opened = 0

        async def refuse(cursor: LogCursor) -> AsyncGenerator[Batch, None]:
            await asyncio.sleep(1)
            if not world.readers:
                raise StatusError(401, "Unauthorized", "revoked")
            yield []

        sources = Sources(VirtualClock())
        other = Reader(world)

        async def follow_refused() -> None:
            nonlocal opened
            async with aclosing(follow_log(sources, KEY, refuse, LogCursor("u1"))) as found:
                opened += 1
                with pytest.raises(StatusError):
                    await anext(found)

        async with Scope("test") as scope:
            scope.spawn_forever(sources.run(), name="sources")
            await asyncio.sleep(0)
            first = scope.spawn(follow_refused(), name="first")
            await asyncio.sleep(0.5)
            await asyncio.gather(first, scope.spawn(other.read(sources, 0), name="other"))
        assert opened == 1 and other.seen["p0"] == list(range(10))

    run_virtual(main(), limit=3600)


def test_a_source_that_fails_is_replaced_for_the_next_one() -> None:
    class Broken(Source):
        async def run(self) -> None:
            raise ValueError("a bug")

    async def main() -> None:
        sources = Sources(VirtualClock())
        with pytest.raises(Problem):
            async with sources.using(Broken, "key", Broken):
                pass
        async with Scope("test") as scope:
            scope.spawn_forever(sources.run(), name="sources")
            await asyncio.sleep(0)
            seen = []
            for _ in range(2):
                async with sources.using(Broken, "key", Broken) as source:
                    await source.changes.next.wait()
                    assert source.has_ended
                    seen.append(source)
                    with pytest.raises(ValueError, match="a bug"):
                        source.check()
            assert seen[0] is not seen[1]

    run_virtual(main(), limit=3600)


def test_the_same_position_has_the_same_text_in_whatever_order_it_was_reached() -> None:
    lines = [build_line(pod, number) for pod in PODS for number in range(4)]
    one, other = LogCursor("u1"), LogCursor("u1")
    PieceBuilder(one).build(lines)
    PieceBuilder(other).build(lines[::-1][::-1][4:] + lines[:4])
    assert one.dump() == other.dump()
    assert parse_cursor(one.dump()).dump() == one.dump()


def test_a_mark_has_no_place_and_a_later_attempt_covers_an_earlier_one() -> None:
    cursor = LogCursor("u1")
    mark, line = cursor.note(LogMark(WAITING, 0, "no room")), cursor.note(build_line("p0", 0))
    assert mark.place is None and not LogCursor("u1").covers(mark)
    assert cursor.covers(line) and not LogCursor("u1").covers(line)
    later = LogCursor("u1")
    later.note(build_line("p0", 0, attempt=1))
    assert later.covers(line) and cursor.is_within(later) and not later.is_within(cursor)
