"""Signals of the control-plane process: the first SIGTERM or SIGINT asks it to stop tidily, a second SIGINT ends it.

A closed window (SIGHUP) asks as well, unless somebody started it with `nohup`.

Ctrl-C twice must always work, also when tidying hangs. Everything else about stopping is in `embedded`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_FORCED_EXIT = 130


class StopRequest:
    """Set by the first signal; `name` says which."""

    def __init__(self) -> None:
        self.name = ""
        self._event = asyncio.Event()

    def set(self, name: str) -> None:
        if self._event.is_set() and name == signal.SIGINT.name:
            os._exit(_FORCED_EXIT)
        self.name = self.name or name
        self._event.set()

    async def wait(self) -> str:
        await self._event.wait()
        return self.name


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handles SIGTERM, SIGINT and SIGHUP for the block; inside a running loop, in the main thread."""
    loop = asyncio.get_running_loop()
    request = StopRequest()
    handled = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    for number in handled:
        loop.add_signal_handler(number, request.set, number.name)
    try:
        yield request
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
