"""Reading the logs of Pods: tail, limit, previous attempt, and following until the container ends.

Output is stored as the program wrote it, without time stamps, so `timestamps` and `since` cannot be answered and are
refused by name. Followers are woken by inotify when the file grows, and by the agent when the container has ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.client.contract import LogOptions
from trainmaster.node.inotify import Inotify
from trainmaster.node.podfiles import PodFiles

_PIECE = 65536


class PodLogReader:
    """`apiserver.http.logs.PodLogs`. `find_end(uid, container, attempt)` is set when that attempt is over."""

    def __init__(self, root: Path, inotify: Inotify, find_end: Callable[[str, str, int], asyncio.Event]) -> None:
        self._root = root
        self._inotify = inotify
        self._find_end = find_end

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Refuses at once what cannot be answered; the bytes follow."""
        if options.timestamps or options.since_seconds is not None or options.since_time:
            raise status.bad_request(
                "this node stores logs without time stamps: timestamps and since are not supported"
            )
        attempt = _choose_attempt(pod, container, previous=options.previous)
        path = PodFiles(self._root, pod["metadata"]["uid"]).get_log(container, attempt)
        if not path.exists():
            name = pod["metadata"]["name"]
            raise status.bad_request(f'container "{container}" in pod "{name}" has no log on this node')
        return self._stream(path, pod["metadata"]["uid"], container, attempt, options)

    async def _stream(
        self, path: Path, uid: str, container: str, attempt: int, options: LogOptions
    ) -> AsyncIterator[bytes]:
        left = options.limit_bytes
        with path.open("rb") as file:
            file.seek(find_tail(path, options.tail_lines))
            pieces = self._follow(file.fileno(), path, uid, container, attempt, options.follow)
            async with aclosing(pieces):
                async for piece in pieces:
                    if left is not None:
                        piece = piece[:left]
                        left -= len(piece)
                    yield piece
                    if left == 0:
                        return

    async def _follow(
        self, fd: int, path: Path, uid: str, container: str, attempt: int, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        ended = self._find_end(uid, container, attempt)
        with self._inotify.watch(path) as grown:
            while True:
                grown.clear()
                over = ended.is_set() or not follow
                while piece := os.read(fd, _PIECE):
                    yield piece
                    # A large log is handed out in pieces; others get their turn in between.
                    await asyncio.sleep(0)
                if over:
                    return
                await _wait_for_any(grown, ended)


async def _wait_for_any(*events: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _choose_attempt(pod: Object, container: str, *, previous: bool) -> int:
    """Running: the current attempt; waiting after a crash: the last that ended, which has the same number."""
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        if entry.get("name") == container:
            count = int(entry.get("restartCount", 0))
            in_back_off = "waiting" in (entry.get("state") or {}) and (entry.get("lastState") or {})
            return count - 1 if previous and not in_back_off else count
    return 0


def find_tail(path: Path, lines: int | None) -> int:
    """Where the last `lines` lines begin; the start of the file when it has fewer."""
    if lines is None:
        return 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if lines == 0:
            return end
        position, missing, first = end, lines, True
        while position > 0:
            start = max(0, position - _PIECE)
            file.seek(start)
            block = file.read(position - start)
            # The line break that ends the last line does not begin another one.
            missing += 1 if first and block.endswith(b"\n") else 0
            first = False
            count = block.count(b"\n")
            if count >= missing:
                return start + _find_break(block, missing) + 1
            missing -= count
            position = start
    return 0


def _find_break(block: bytes, number: int) -> int:
    """Offset of the number-th line break from the end."""
    position = len(block)
    for _ in range(number):
        position = block.rindex(b"\n", 0, position)
    return position
