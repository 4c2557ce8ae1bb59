"""The server process: its event loop, its signals and its resource limits.

The first SIGTERM or SIGINT stops it gracefully, a second SIGINT ends it immediately. SIGHUP (a closed terminal) also
stops it, unless it was started with `nohup`. The order of stopping is in `embedded`.
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
"""Every connection is an open file, and the usual soft limit is 1,024. Not the hard limit, because jobs inherit this
value, and some programs iterate over all possible descriptors."""
_OOM_SCORE = -500
"""If many small programs of jobs use up the memory, the OOM killer would choose the largest process: the server. Not
the minimum, so that the server can still be killed if it is the one that grows."""
_FORCED_EXIT = 130


def find_loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory if it is enabled and installed, else asyncio's default (None)."""
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


def raise_descriptor_limit() -> int:
    """Raises the soft limit as far as the hard limit allows; returns the new value."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def protect_from_oom_killer() -> None:
    """Makes the OOM killer prefer other processes; needs root. The zygote and shims inherit it, programs in Pods do not
    (`shim.launch`)."""
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
    """Handles SIGTERM, SIGINT and SIGHUP during the block. Call it in the main thread, inside a running loop."""
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
