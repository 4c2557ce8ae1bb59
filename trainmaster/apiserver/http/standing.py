"""Long-running answers (watches, followed logs, sessions): limits their number, and rechecks permissions.

A credential can be revoked, or a permission removed, while a stream is open. Every few seconds each stream is
authenticated and authorized again. Streams with the same credential and resource are checked once, from memory, so
thousands of watches take a few milliseconds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.auth.contract import MASTERS
from trainmaster.edge.limits import EdgeLimits

log = logging.getLogger(__name__)

CHECK_SECONDS = 2

Check = Callable[[ApiRequest], None]
"""Raises StatusError 401 or 403 if this request would be refused now."""


@dataclass(eq=False, slots=True)
class StandingStream:
    request: ApiRequest
    end: Callable[[StatusError], None]
    """Tells the client why, and ends the stream."""
    verdict: StatusError | None = None


class StandingStreams:
    def __init__(self, limits: EdgeLimits, check: Check) -> None:
        self._limits = limits
        self._check = check
        self._streams: dict[StandingStream, None] = {}
        self._users: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._streams)

    def check_capacity(self, request: ApiRequest) -> None:
        """Raises StatusError 429 if there are too many, of this user or in total."""
        limits, identity = self._limits, request.identity
        mine = most = limits.watchers
        if MASTERS not in identity.groups:
            # An eighth is reserved for administrators.
            mine, most = limits.watchers_per_user, most - most // 8
        if len(self._streams) >= most or self._users[identity.user] >= mine:
            setting = "watchers" if len(self._streams) >= most else "watchers_per_user"
            text = f"too many open watches, please try again later (limits.{setting})"
            raise status.too_many_requests(text, 1)

    def add(self, stream: StandingStream) -> None:
        self._streams[stream] = None
        self._users[stream.request.identity.user] += 1

    def remove(self, stream: StandingStream) -> None:
        if stream not in self._streams:
            return
        del self._streams[stream]
        user = stream.request.identity.user
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]

    def review(self) -> None:
        """Ends streams that would be refused if they started now."""
        verdicts: dict[tuple[object, ...], StatusError | None] = {}
        for stream in tuple(self._streams):
            key = _build_key(stream.request)
            if key not in verdicts:
                verdicts[key] = self._find_verdict(stream.request)
            verdict = verdicts[key]
            if verdict is not None:
                user = stream.request.identity.user
                log.info("stream ended", extra={"action": "http.revoked", "user": user, "reason": verdict.reason})
                stream.end(verdict)

    def _find_verdict(self, request: ApiRequest) -> StatusError | None:
        again = request.repeat(b"")
        again.peer = request.peer
        try:
            self._check(again)
        except StatusError as error:
            return error if error.code in (401, 403) else None
        return None


def _build_key(request: ApiRequest) -> tuple[object, ...]:
    """What the result depends on."""
    headers = request.headers
    impersonated = tuple(
        (name, tuple(request.values(name))) for name in sorted(headers) if name.startswith("impersonate-")
    )
    return (headers.get("authorization"), id(request.peer), impersonated, request.route)
