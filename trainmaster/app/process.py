"""The server as a process: its event loop, its signals, and what it asks of the kernel for itself.

The first SIGTERM or SIGINT asks it to stop, a second SIGINT ends it: Ctrl-C twice must always work. A closed window
(SIGHUP) asks as well, unless somebody started it with `nohup`. The rest about stopping is in `embedded`.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = 65_536
"""Every connection is an open file, and shells start programs with room for 1,024. Not all that a machine allows:
programs exist that walk through every possible descriptor, and jobs inherit this."""
_OOM_SCORE = -500
"""Many small programs of jobs together can take all memory, and the kernel would end the largest process: ours. Not the
least there is: should the server itself be what grows, it must be possible to end it."""
_FORCED_EXIT = 130


def find_loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is wanted and installed, else asyncio's own."""
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


def raise_descriptor_limit() -> int:
    """Raises the soft limit as far as the hard one lets us; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def go_last_without_memory() -> None:
    """Takes root. Zygote and shims inherit it; programs in Pods go first (`shim.launch`)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


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
