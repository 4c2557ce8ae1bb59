"""Rate limits on requests: a token bucket per caller.

Administrators are not limited. Refusals are cheap, because they come before the body is read.
"""

from __future__ import annotations

from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import Problem


class Rates:
    """`per_second` 0 means no limit; `burst` requests may arrive at once."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._buckets = TokenBuckets(clock, per_second=per_second, burst=burst) if per_second else None
        self._burst = burst
        self._limit = f"more than {per_second:g} requests a second, and no more than {burst:g} at once"

    def measure(self, who: str) -> tuple[int, int] | None:
        """(used, allowed) of the burst; None without a limit."""
        return None if self._buckets is None else (self._buckets.count_taken(who), self._burst)

    def take(self, who: str) -> None:
        """Raises Problem 429 if the bucket is empty."""
        if self._buckets is None or self._buckets.take(who):
            return
        seconds = self._buckets.get_wait(who)
        raise Problem(429, "too-many-requests", self._limit, retry_after=max(1, int(seconds + 0.999)))
