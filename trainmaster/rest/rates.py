"""How many requests a second somebody may send: a bucket of tokens for each, refilled as time goes by.

Administrators are not counted. What is refused costs nothing but the look: it comes before the body is read.
"""

from __future__ import annotations

from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import Problem


class Rates:
    """`per_second` 0 is no limit; `burst` may come at once."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._buckets = TokenBuckets(clock, per_second=per_second, burst=burst) if per_second else None
        self._burst = burst
        self._limit = f"more than {per_second:g} requests a second, and no more than {burst:g} at once"

    def measure(self, who: str) -> tuple[int, int] | None:
        """(taken, allowed) of what may come at once; None without a limit."""
        return None if self._buckets is None else (self._buckets.count_taken(who), self._burst)

    def take(self, who: str) -> None:
        """Problem 429 when the bucket is empty."""
        if self._buckets is None or self._buckets.take(who):
            return
        seconds = self._buckets.get_wait(who)
        raise Problem(429, "too-many-requests", self._limit, retry_after=max(1, int(seconds + 0.999)))
