"""The wall time of an API server, as its answers tell it.

On a cluster, most stored times are those of the API server (`creationTimestamp`), and ours are read by others. If the
clock of this machine is wrong, a deadline or a TTL that is computed from both is wrong by the same amount. So the
operator uses the time of the API server. It needs no rights and no requests: every HTTP answer has a `Date`.

A `Date` has a precision of one second, and was written between the moments at which the request was sent and the answer
arrived. Each answer therefore limits the difference between the server's time and boot time from both sides, and many
answers limit it to less than a second. The local wall clock is used as long as it is within these limits; otherwise the
nearest limit is used. Boot time makes this independent of steps of the wall clock, and of a process that stood still.
"""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime

from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LENGTH = len("Wed, 18 Nov 2026 22:40:00 GMT")
_NOTABLE = 30.0
"""Seconds of difference above which a person is told."""


class ServerClock:
    """Implements `kit.clock.Clock`: the server's wall time, and boot time, monotonic time and sleep of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.boot = clock.boot
        self.sleep = clock.sleep
        self._least = -math.inf
        self._most = math.inf
        """Limits of: the server's Unix time - our boot time."""
        self._last: tuple[str, float | None] = ("", None)
        """The text of the last date and what it says: parsed once a second, however many answers there are."""
        self._told = False

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.unix(), UTC)

    def unix(self) -> float:
        boot = self._clock.boot()
        return min(max(self._clock.unix(), boot + self._least), boot + self._most)

    def note(self, date: str, sent: float) -> None:
        """Takes note of an answer that has just arrived: its `Date`, and the boot time when the request was sent."""
        if date != self._last[0]:
            self._last = (date, _parse_date(date))
        server = self._last[1]
        if server is None:
            return
        least, most = server - self._clock.boot(), server + 1.0 - sent
        if max(least, self._least) <= min(most, self._most):
            least, most = max(least, self._least), min(most, self._most)
        # Otherwise the two contradict each other, because a clock was set or clocks have drifted: the newer one counts.
        self._least, self._most = least, most
        self._tell()

    def _tell(self) -> None:
        ahead = self._clock.unix() - self.unix()
        if self._told == (abs(ahead) >= _NOTABLE):
            return
        self._told = not self._told
        if self._told:
            way = "ahead of" if ahead > 0 else "behind"
            text = f"the clock of this machine is {abs(ahead):.0f} s {way} the API server's; the server's time is used"
            log.warning(text, extra={"action": "clock.differs"})
        else:
            log.info("the clock of this machine agrees with the API server's", extra={"action": "clock.agrees"})


def _parse_date(text: str) -> float | None:
    """Unix time of an HTTP date in its usual form; None for others. Cheaper than the standard library's parser, whose
    import alone takes longer than a command may."""
    if len(text) != _LENGTH or not text.endswith(" GMT") or text[8:11] not in _MONTHS:
        return None
    try:
        month = _MONTHS.index(text[8:11]) + 1
        hour, minute, second = map(int, text[17:25].split(":"))
        return datetime(int(text[12:16]), month, int(text[5:7]), hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
