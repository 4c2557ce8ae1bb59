"""Time, injected. The only module that reads the machine's clocks.

Wall time (`now`) is for what is stored and shown; `boot` runs on through suspend and never jumps, and decides about
expiry; `monotonic` is for measuring. `sleep` belongs to the clock so that tests can make it virtual
(`trainmaster.testing.virtual`). Most code should take `Clock` and use only the reading half.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC wall time."""
        ...

    def unix(self) -> float:
        """The same wall time as seconds since 1970: what every request asks for, at a tenth of the cost."""
        ...

    def monotonic(self) -> float: ...

    def boot(self) -> float:
        """Seconds since boot, suspend included; unaffected by steps of the wall clock."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def unix(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boot(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def format_time(moment: datetime) -> str:
    """RFC 3339 with seconds, the form of metav1.Time: 2026-01-31T23:59:59Z."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # A third of the time of strftime; every write formats some.
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def format_micro_time(moment: datetime) -> str:
    """RFC 3339 with microseconds, the form of metav1.MicroTime."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def parse_time(text: str) -> datetime:
    """Any RFC 3339 form (also `+00:00`, fractions); ValueError when it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return moment.astimezone(UTC)
