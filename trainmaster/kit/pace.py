"""Spreads calls over time: a rate with a burst, for one who calls others. For use on one event loop.

`buckets` refuses callers who are too fast; this delays our own calls instead, in the order in which they came.
"""

from __future__ import annotations

from trainmaster.kit.clock import Clock


class Pace:
    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        self._clock = clock
        self._rate = per_second
        self._burst = float(burst)
        self._level = float(burst)
        self._updated = clock.monotonic()

    async def wait(self) -> None:
        """Returns when it is the caller's turn. One who is cancelled has used its turn."""
        now = self._clock.monotonic()
        self._level = min(self._burst, self._level + (now - self._updated) * self._rate) - 1.0
        self._updated = now
        if self._level < 0:
            await self._clock.sleep(-self._level / self._rate)
