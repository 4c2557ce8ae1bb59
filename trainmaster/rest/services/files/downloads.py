"""Tickets for downloads: a browser fetches an address without headers, so the address itself has to open it.

A ticket is a secret of 256 bits that serves once, within a minute. What it opens is looked up when it is used, as the
caller who asked for it, so whatever was revoked meanwhile stays closed. Tickets are in memory: a restart, or another
replica, knows none of them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.ids import Ids
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.files.contract import OpenedFile

SECONDS = 60.0
_MOST = 1_000
_MOST_OF_ONE = 50
Open = Callable[[], Awaitable[OpenedFile]]


@dataclass(frozen=True, slots=True)
class DownloadPass:
    text: str = field(repr=False)
    expires: str


@dataclass(frozen=True, slots=True)
class _Issued:
    user: str
    open: Open
    until: float


class Downloads:
    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._issued: OrderedDict[str, _Issued] = OrderedDict()
        """By the hash of the ticket, the oldest first."""

    def issue(self, user: str, open_file: Open) -> DownloadPass:
        """Of one user the oldest gives way; raises Problem 429 when all users together have too many."""
        now = self._clock.boot()
        for key in [key for key, one in self._issued.items() if one.until <= now]:
            del self._issued[key]
        own = [key for key, one in self._issued.items() if one.user == user]
        for key in own[: max(0, len(own) + 1 - _MOST_OF_ONE)]:
            del self._issued[key]
        if len(self._issued) >= _MOST:
            raise Problem(429, "too-many-downloads", "too many downloads wait to begin", retry_after=int(SECONDS))
        text = self._ids.token()
        self._issued[_hash(text)] = _Issued(user, open_file, now + SECONDS)
        return DownloadPass(text, format_time(self._clock.now() + timedelta(seconds=SECONDS)))

    async def redeem(self, text: str) -> OpenedFile:
        """Raises Problem 404 for a ticket that is unknown, used or expired."""
        issued = self._issued.pop(_hash(text), None)
        if issued is None or issued.until <= self._clock.boot():
            detail = "there is no such ticket: it was used, or a minute has passed"
            raise Problem(404, "not-found", detail, hint="download the file again from the page")
        return await issued.open()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
