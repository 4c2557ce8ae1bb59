"""Token buckets by name: rate limits with a burst. For use on one event loop.

A bucket that is full again is dropped, so memory is bounded by the names that were active recently.
"""

from __future__ import annotations

import math

from trainmaster.kit.clock import Clock

_LOOK_EVERY = 1024


class TokenBuckets:
    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        self._clock = clock
        self._rate = per_second
        self._burst = float(burst)
        self._levels: dict[str, tuple[float, float]] = {}
        """Name -> (tokens, time of the last update)."""
        self._takes = 0

    def take(self, name: str) -> bool:
        """Takes a token; False if there is none."""
        now = self._clock.monotonic()
        level = self._get_level(name, now)
        self._takes += 1
        if self._takes % _LOOK_EVERY == 0:
            self._forget(now)
        if level < 1.0:
            self._levels[name] = (level, now)
            return False
        self._levels[name] = (level - 1.0, now)
        return True

    def charge(self, name: str, tokens: float) -> None:
        """Charges extra tokens for an operation that cost more than one. The debt is limited to one burst."""
        now = self._clock.monotonic()
        self._levels[name] = (max(-self._burst, self._get_level(name, now) - tokens), now)

    def get_wait(self, name: str) -> float:
        """Seconds until there is a token; 0 when there is one."""
        return max(0.0, 1.0 - self._get_level(name, self._clock.monotonic())) / self._rate

    def count_taken(self, name: str) -> int:
        """How many tokens are missing from a full bucket."""
        return math.ceil(self._burst - self._get_level(name, self._clock.monotonic()))

    def __len__(self) -> int:
        return len(self._levels)

    def _get_level(self, name: str, now: float) -> float:
        known = self._levels.get(name)
        return self._burst if known is None else min(self._burst, known[0] + (now - known[1]) * self._rate)

    def _forget(self, now: float) -> None:
        self._levels = {name: known for name, known in self._levels.items() if self._get_level(name, now) < self._burst}
