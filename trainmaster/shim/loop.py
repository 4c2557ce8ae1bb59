"""The event loop of zygote and shim: poll, timers, and signals as events. The only place that reads their clocks.

Single-threaded, without busy polling: an idle process sleeps in the kernel. A handler gets the event mask of its
descriptor and may add and remove descriptors, including its own.
"""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from collections.abc import Callable

Handler = Callable[[int], object]

READ = select.POLLIN
WRITE = select.POLLOUT
# Skips the conversion to enumerations, which touches much memory that would have to be copied after a fork.
set_signal = getattr(signal.signal, "__wrapped__", signal.signal)
GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def get_monotonic() -> float:
    return time.monotonic()


def get_wall() -> float:
    return time.time()


def get_wall_ns() -> int:
    return time.time_ns()


class Timer:
    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], None] | None) -> None:
        self.at = at
        self.call = call

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.at < other.at


class Loop:
    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[Timer] = []
        self._on_child: Callable[[], None] | None = None
        self._wake: tuple[int, int] | None = None

    def add(self, fd: int, handler: Handler, events: int = READ) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def remove(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def call_after(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(get_monotonic() + seconds, call)
        heapq.heappush(self._timers, timer)
        return timer

    def watch_children(self, on_child: Callable[[], None]) -> None:
        """Calls `on_child` after each SIGCHLD, to reap children."""
        self._on_child = on_child
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wake = (reader, writer)
        set_signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.add(reader, self._read_signals)

    def close(self) -> None:
        """For a forked child that does not use the loop."""
        if self._wake is not None:
            signal.set_wakeup_fd(-1)
            set_signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wake[0])
            os.close(self._wake[1])
            self._wake = None
        self._handlers.clear()
        self._timers.clear()

    def run_once(self) -> None:
        """Waits until there are events or a timer is due, and handles them."""
        ready = self._poll.poll(self._get_poll_timeout())
        for fd, events in ready:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(events)
        self._run_timers()

    def _get_poll_timeout(self) -> int | None:
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        # Rounded up, so that the loop does not wake up slightly too early.
        return int(max(0.0, self._timers[0].at - get_monotonic()) * 1000) + 1

    def _run_timers(self) -> None:
        now = get_monotonic()
        while self._timers and self._timers[0].at <= now:
            timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()

    def _read_signals(self, _: int) -> None:
        assert self._wake is not None
        try:
            os.read(self._wake[0], 4096)
        except BlockingIOError:
            return
        if self._on_child is not None:
            self._on_child()


def _ignore(_number: int, _frame: object) -> None:
    """The wake-up descriptor is written only if there is a Python handler."""
