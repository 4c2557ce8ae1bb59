"""Counts failed logins by address, and refuses more after too many of them. Bookkeeping; for one event loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from trainmaster.edge.addresses import build_address_group
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import Problem

MOST_FAILURES = 5
WINDOW_SECONDS = 60.0
_LOOK_ABOVE = 1_000


class LoginFailures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def check(self, address: str) -> None:
        """Raises Problem 429 after too many failures within the window."""
        recent = self._list_recent(address)
        if len(recent) >= MOST_FAILURES:
            seconds = recent[0] + WINDOW_SECONDS - self._clock.monotonic()
            detail = f"more than {MOST_FAILURES} logins a minute have failed from this address"
            raise Problem(429, "too-many-logins", detail, retry_after=max(1, math.ceil(seconds)))

    @contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """Counts an attempt as a failure if the block raises Problem 401, and while it lasts: others may be made at the
        same time."""
        self.note(address)
        has_failed = False
        try:
            yield
        except Problem as problem:
            has_failed = problem.status == 401
            raise
        finally:
            if not has_failed:
                self._forgive(address)

    def note(self, address: str) -> None:
        """Counts a failure. Raises Problem 429 if there were too many before."""
        self.check(address)
        self._times.setdefault(build_address_group(address), []).append(self._clock.monotonic())
        if len(self._times) > _LOOK_ABOVE:
            self._times = {group: times for group, times in self._times.items() if self._keep(times)}

    def _forgive(self, address: str) -> None:
        times = self._times.get(build_address_group(address))
        if times:
            times.pop()

    def __len__(self) -> int:
        """The number of addresses."""
        return len(self._times)

    def _list_recent(self, address: str) -> list[float]:
        group = build_address_group(address)
        recent = self._keep(self._times.pop(group, []))
        if recent:
            self._times[group] = recent
        return recent

    def _keep(self, times: list[float]) -> list[float]:
        now = self._clock.monotonic()
        return [time for time in times if now - time < WINDOW_SECONDS]
