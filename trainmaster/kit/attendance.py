"""For how long this process has been at work without a pause.

While a server is down, stopped (SIGSTOP) or asleep with its machine, reports of programs are lost. So whoever concludes
something from their absence counts only the time since this process has been there again.
"""

from __future__ import annotations

from trainmaster.kit.clock import Clock

_PERIOD = 10.0
_LONGEST = 30.0
"""Seconds without a sign of this process that count as an absence. A busy loop is late by less."""


class Attendance:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = self._seen = clock.boot()

    def count_seconds(self) -> float:
        """Since the start, or the end of the last pause; 0 right after a pause, before `run` has noticed it."""
        now = self._clock.boot()
        return 0.0 if now - self._seen > _LONGEST else now - self._since

    def begin(self) -> None:
        """Counts from now on: an operator leads from here on."""
        self._since = self._seen = self._clock.boot()

    async def run(self) -> None:
        """For ever."""
        while True:
            now = self._clock.boot()
            if now - self._seen > _LONGEST:
                self._since = now
            self._seen = now
            await self._clock.sleep(_PERIOD)
