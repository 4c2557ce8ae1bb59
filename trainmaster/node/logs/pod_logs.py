"""The logs of Pods, with every option of the API: `apiserver.http.subresources.logs.PodLogs`.

Applies the tail first, then time and stream, then the limit, like the kubelet. Followers are woken by inotify when the
log grows or is rotated, and by the agent when the container has ended; there is no polling.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.client.contract import LogOptions
from trainmaster.jobs.logs.windows.stored import locate_since
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock, parse_time
from trainmaster.node.logs.end_signal import EndSignal
from trainmaster.node.logs.entries import Renderer, format_stamp, get_tail
from trainmaster.node.logs.files import LogPieces
from trainmaster.node.logs.inotify import Inotify
from trainmaster.node.machine.model import read_plan
from trainmaster.shim.protocol import Paths

_PIECE = 1 << 16
_BUSY_SECONDS = 0.0002
_PAUSE_SECONDS = 0.004

GetEndSignal = Callable[[Pod, str, int], EndSignal]


@dataclass(frozen=True, slots=True)
class _Asked:
    path: Path
    follow: bool
    tail: int | None
    limit: int | None
    since: str


class CriLogReader:
    """`get_end_signal(pod, container, attempt)` is set when that attempt is over and its log complete."""

    def __init__(self, root: Path, inotify: Inotify, get_end_signal: GetEndSignal, clock: Clock) -> None:
        self._root = root
        self._inotify = inotify
        self._get_end_signal = get_end_signal
        self._clock = clock
        self._turn = asyncio.Lock()

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Raises immediately if the request is invalid; then streams the bytes."""
        model = Pod(pod)
        attempt = choose_attempt(model, container, previous=options.previous)
        path = Path(Paths(str(self._root / model.uid)).log(container, attempt))
        if not path.exists():
            if any(one.name == container and one.is_satisfied for one in read_plan(model).containers):
                return _stream_nothing()
            raise status.bad_request(f'container "{container}" in pod "{model.name}" has no log on this node')
        since = self._read_since(options)
        renderer = Renderer(timestamps=options.timestamps, since=since, stream=options.stream.lower().encode())
        asked = _Asked(path, options.follow, options.tail_lines, options.limit_bytes, since.decode())
        return self._stream(asked, renderer, self._get_end_signal(model, container, attempt))

    def _read_since(self, options: LogOptions) -> bytes:
        if options.since_seconds is not None:
            return format_stamp(self._clock.now() - timedelta(seconds=options.since_seconds))
        if not options.since_time:
            return b""
        try:
            return format_stamp(parse_time(options.since_time))
        except ValueError as error:
            raise status.bad_request(f"sinceTime is not an RFC 3339 time: {error}") from None

    async def _stream(self, asked: _Asked, renderer: Renderer, ended: EndSignal) -> AsyncIterator[bytes]:
        left = asked.limit
        pieces = self._read_pieces(asked, renderer, ended)
        async with aclosing(pieces):
            async for piece in pieces:
                if left is not None:
                    piece = piece[:left]
                    left -= len(piece)
                if piece:
                    yield piece
                if left == 0:
                    return

    async def _take_turn(self) -> None:
        """Of all large logs that are being read, one piece is returned in each round of the event loop, and none for a
        moment after a round in which others had work."""
        async with self._turn:
            began = self._clock.monotonic()
            await asyncio.sleep(0)
            if self._clock.monotonic() - began > _BUSY_SECONDS:
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _read_pieces(self, asked: _Asked, renderer: Renderer, ended: EndSignal) -> AsyncGenerator[bytes, None]:
        carry = b""
        with self._inotify.watch(asked.path.parent) as changed, ended.waking(changed):
            log = LogPieces(asked.path)
            try:
                if asked.tail is not None:
                    log.skip_to(*get_tail(log.files, asked.tail))
                elif asked.since:
                    log.skip_to(*locate_since(log.files, asked.since))
                while True:
                    changed.clear()
                    over = ended.is_set or not asked.follow
                    more = True
                    while more:
                        data, more = log.read(_PIECE)
                        entries, end, carry = (carry + data).rpartition(b"\n")
                        if end:
                            yield renderer.render(entries + end)
                        if more:
                            await self._take_turn()
                    if over:
                        yield renderer.finish()
                        return
                    await changed.wait()
            finally:
                log.close()


async def _stream_nothing() -> AsyncIterator[bytes]:
    """The log of a container that had no process."""
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


def choose_attempt(pod: Pod, container: str, *, previous: bool) -> int:
    """Running: the current attempt; waiting after a crash: the last one that ended, which has the same number."""
    for entry in (*pod.container_statuses, *pod.init_container_statuses):
        if entry.get("name") == container:
            count = int(entry.get("restartCount", 0))
            in_back_off = "waiting" in read_fields(entry, "state") and entry.get("lastState")
            return count - 1 if previous and not in_back_off else count
    return 0
