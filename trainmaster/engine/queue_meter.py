"""What a work queue does, counted for metrics: how many requests it got, and how long each waited and was worked on.

Only the operator has meters; a queue without one spends nothing on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from trainmaster.kit.clock import Clock


class QueueMeter:
    def __init__(self, clock: Clock, observe_wait: Callable[[float], None]) -> None:
        self._clock = clock
        self._observe_wait = observe_wait
        self._waiting: dict[Hashable, float] = {}
        """Since when."""
        self._working: dict[Hashable, float] = {}
        self.added = 0
        self.retried = 0

    def note_added(self, key: Hashable) -> None:
        """It waits for a worker; harmless if it does already."""
        if key not in self._waiting:
            self.added += 1
            self._waiting[key] = self._clock.monotonic()

    def note_taken(self, key: Hashable) -> None:
        now = self._clock.monotonic()
        self._observe_wait(now - self._waiting.pop(key, now))
        self._working[key] = now

    def note_done(self, key: Hashable) -> None:
        self._working.pop(key, None)

    @property
    def depth(self) -> int:
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Workers that have a request."""
        return len(self._working)

    def list_work_seconds(self) -> list[float]:
        """For how long each of them has had it."""
        now = self._clock.monotonic()
        return [now - began for began in self._working.values()]
