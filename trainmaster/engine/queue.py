"""The work queue of one controller: each request at most once, never two at a time, with back-off and wake-ups.

Sources add requests; workers take them with `get` and return them with `done`. A request that is added while a worker
has it is queued again afterwards, so nothing is lost and no object is handled twice at the same time. A worker can
return a request with a pause, so that one pass handles everything that happens meanwhile. For the same reason reports
(`add_report`) let urgent requests go first, including those of other queues with the same `QueuePace`. All methods
except `get` are synchronous and must be called on the loop's thread. Delays are in boot time, which continues while a
laptop sleeps; the loop's timers do not, so no wait is longer than a minute. The clock is injected: tests use virtual
time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from trainmaster.api.status import StatusError
from trainmaster.engine.queue_meter import QueueMeter
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock

K = TypeVar("K")

RETRY = BackoffPolicy(first=0.005, cap=60.0)
"""Upstream also starts with 5 ms, and waits up to 1000 s; on one machine a minute is enough."""

LONGEST_WAIT = 60.0
"""Seconds after which timers are compared with boot time again: how late one can be after the machine has slept."""

_NO_SPACE = 507

PATIENCE = 0.1
"""Seconds for which a report may be delayed by more urgent work. With 32 TrainJobs at once this saves a quarter of the
passes; with 0.02 it is a tenth."""

_SOON = 0.01
"""Seconds within which a wake-up means that a pass has more to do at once."""


class QueuePace:
    """Shared by several queues: reports of one wait while another has urgent requests.

    With `in_turns`, queues also take turns: one hands out the reports that it has when its turn begins, while those of
    the others collect. With 32 TrainJobs at once this saves a sixth of the passes, and with passes of the same kind in
    a row an eighth of the CPU time. Not for passes that wait for a network, during which others could work.
    """

    def __init__(self, *, in_turns: bool = False) -> None:
        self.urgent = 0
        self._in_turns = in_turns
        self._holder: object = None
        self._left = 0
        """How many reports the holder of the turn may still hand out."""
        self._wake: list[Callable[[], None]] = []

    def join(self, wake: Callable[[], None]) -> None:
        """`wake` is called when the last urgent request was taken, and when a turn ends."""
        self._wake.append(wake)

    def take(self) -> None:
        self.urgent -= 1
        if not self.urgent:
            self._wake_all()

    def admits(self, queue: object, reports: int) -> bool:
        """Whether the queue may hand out one of its reports now."""
        if self.urgent:
            return False
        if not self._in_turns:
            return True
        if not self._left:
            self._holder, self._left = queue, reports
        return self._holder is queue

    def note_taken(self, queue: object) -> None:
        """The queue has one report less."""
        if self._left and self._holder is queue:
            self._left -= 1
            if not self._left:
                self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._wake:
            wake()


class WorkQueue(Generic[K]):
    def __init__(
        self,
        clock: Clock,
        *,
        retry: BackoffPolicy = RETRY,
        pace: QueuePace | None = None,
        meter: QueueMeter | None = None,
    ) -> None:
        self._clock = clock
        self._meter = meter
        self._retry = retry
        self._pace = pace or QueuePace()
        self._pace.join(self._wake_for_reports)
        self._reports: dict[K, float] = {}
        """Until when each may be delayed."""
        self._report_again: set[K] = set()
        self._ready: OrderedDict[K, None] = OrderedDict()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._resting: set[K] = set()
        self._rests: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._counter = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Of the workers that have nothing to do. Each change wakes one of them, not all."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        """How many requests wait for a worker now."""
        return len(self._ready) + len(self._reports)

    @property
    def is_idle(self) -> bool:
        return not (self._ready or self._reports or self._busy or self._again or self._report_again)

    @property
    def is_settled(self) -> bool:
        """Idle, with nothing to retry and nothing to continue at once."""
        soon = self._clock.boot() + _SOON
        return self.is_idle and not self._failures and not (self._later and self._later[0][0] <= soon)

    def add(self, key: K) -> None:
        if key in self._busy or key in self._resting:
            self._again.add(key)
        elif key not in self._ready:
            if self._reports.pop(key, None) is not None:
                self._pace.note_taken(self)
            self._ready[key] = None
            if self._meter is not None:
                self._meter.note_added(key)
            self._pace.urgent += 1
            self._wake_one()

    def add_report(self, key: K) -> None:
        """Adds a key that may wait until no queue of the same pace has anything urgent, so that one pass handles
        several reports."""
        if key in self._busy or key in self._resting:
            self._report_again.add(key)
        elif key not in self._ready and key not in self._reports:
            self._reports[key] = self._clock.boot() + PATIENCE
            if self._meter is not None:
                self._meter.note_added(key)
            self._wake_one()

    def _wake_for_reports(self) -> None:
        if self._reports:
            self._wake_one()

    def add_after(self, key: K, seconds: float) -> None:
        """Adds the key later. An earlier wake-up of the same key is kept; a later one is replaced."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.boot() + seconds
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        self._counter += 1
        heapq.heappush(self._later, (due, self._counter, key))
        self._set_timer()

    def retry(self, key: K, error: Exception | None = None) -> float:
        """Adds the key after its back-off and returns the delay. If the disk is full, this is at most the time that the
        server asked for, so that work continues soon after space was freed."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        if self._meter is not None:
            self._meter.retried += 1
        delay = self._retry.delay(failures)
        if isinstance(error, StatusError) and error.code == _NO_SPACE and error.retry_after is not None:
            delay = min(delay, error.retry_after)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the key's back-off after success."""
        self._failures.pop(key, None)

    def done(self, key: K, rest: float = 0.0) -> None:
        """Returns the key. It is not handed out again within `rest` seconds, unless it has a back-off anyway."""
        self._busy.discard(key)
        if self._meter is not None:
            self._meter.note_done(key)
        if rest <= 0 or key in self._failures:
            self._add_again(key)
            return
        self._resting.add(key)
        self._counter += 1
        heapq.heappush(self._rests, (self._clock.boot() + rest, self._counter, key))
        self._set_timer()

    def _add_again(self, key: K) -> None:
        if key in self._again:
            self._again.discard(key)
            self._report_again.discard(key)
            self.add(key)
        elif key in self._report_again:
            self._report_again.discard(key)
            self.add_report(key)

    async def get(self) -> K:
        """Waits for the next request; can be cancelled safely."""
        while True:
            self._release_due()
            if self._ready:
                key, _ = self._ready.popitem(last=False)
                self._begin(key)
                self._pace.take()
                return key
            if self._reports:
                key, until = next(iter(self._reports.items()))
                if self._pace.admits(self, len(self._reports)) or until <= self._clock.boot():
                    del self._reports[key]
                    self._begin(key)
                    self._pace.note_taken(self)
                    self._wake_for_reports()
                    return key
            await self._wait_for_change()

    def _begin(self, key: K) -> None:
        self._busy.add(key)
        if self._meter is not None:
            self._meter.note_taken(key)

    def _release_due(self) -> None:
        now = self._clock.boot()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        while self._rests and self._rests[0][0] <= now:
            _, _, key = heapq.heappop(self._rests)
            self._resting.discard(key)
            self._add_again(key)

    async def _wait_for_change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._set_timer()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # a change may just have passed over it
                    self._waiters.remove(waiter)
            else:
                self._wake_one()  # what this worker was woken for is left to another one
            if not self._waiters:
                self._cancel_timer()
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Wakes a worker when the next request is due. Busy workers look by themselves."""
        moments = [heap[0][0] for heap in (self._later, self._rests) if heap]
        if self._reports:
            moments.append(next(iter(self._reports.values())))
        if not moments or not self._waiters:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + min(max(0.0, min(moments) - self._clock.boot()), LONGEST_WAIT)
        if self._timer is None or due < self._timer_due:
            self._cancel_timer()
            self._timer, self._timer_due = loop.call_at(due, self._ring), due

    def _ring(self) -> None:
        self._timer = None
        self._wake_one()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
