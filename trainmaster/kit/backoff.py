"""Exponential back-off with a cap and jitter. Pure numbers; the caller does the waiting.

Jitter only shortens a delay, so the cap is never exceeded. Without `ids` the sequence is deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.kit.ids import Ids


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    first: float
    """Seconds before the second attempt."""
    cap: float
    factor: float = 2.0
    jitter: float = 0.0
    """The fraction of the delay that is random: 0.2 gives 80 to 100 % of it."""

    def delay(self, failures: int, ids: Ids | None = None) -> float:
        """Seconds to wait after this many failures in a row; 0 for none."""
        if failures <= 0:
            return 0.0
        # 2 ** 1024 overflows a float; every sensible cap is reached far below that.
        delay = min(self.cap, self.first * self.factor ** min(failures - 1, 64))
        if ids is not None and self.jitter:
            delay *= 1.0 - self.jitter * ids.jitter()
        return delay


class Backoff:
    """The retry state of one operation."""

    __slots__ = ("_ids", "_policy", "failures")

    def __init__(self, policy: BackoffPolicy, ids: Ids | None = None) -> None:
        self._policy = policy
        self._ids = ids
        self.failures = 0

    def next(self) -> float:
        """Counts a failure and returns the seconds to wait."""
        self.failures += 1
        return self._policy.delay(self.failures, self._ids)

    def reset(self) -> None:
        self.failures = 0
