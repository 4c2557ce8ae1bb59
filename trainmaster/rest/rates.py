"""How many requests a second somebody may send: a bucket of tokens for each, refilled as time goes by.

Administrators are not counted. What is refused costs nothing but the look: it comes before the body is read.
"""

from __future__ import annotations

from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import Problem

_MOST_REMEMBERED = 10_000


class Rates:
    """`per_second` 0 is no limit; `burst` may come at once."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, float]] = {}
        """Who -> (tokens left, when that was)."""

    def take(self, who: str) -> None:
        """Problem 429 when the bucket is empty."""
        if not self._per_second:
            return
        now = self._clock.monotonic()
        left, seen = self._buckets.get(who, (self._burst, now))
        left = min(self._burst, left + (now - seen) * self._per_second)
        if left < 1.0:
            seconds = (1.0 - left) / self._per_second
            text = f"more than {self._per_second:g} requests a second, and no more than {self._burst:g} at once"
            raise Problem(429, "too-many-requests", text, retry_after=max(1, int(seconds + 0.999)))
        if len(self._buckets) >= _MOST_REMEMBERED and who not in self._buckets:
            self._forget(now)
        self._buckets[who] = (left - 1.0, now)

    def _forget(self, now: float) -> None:
        """Those whose bucket is full again are as good as new."""
        full = self._burst / self._per_second
        self._buckets = {who: entry for who, entry in self._buckets.items() if now - entry[1] < full}
