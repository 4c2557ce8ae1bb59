"""Who may read the metrics of the operator: holders of a token whose owner may get the nonResourceURL `/metrics`.

The API server says who a token belongs to (TokenReview) and what its owner may do (SubjectAccessReview), as for
controller-runtime's metrics. Answers are remembered for a short time, because Prometheus asks every few seconds; not
those about a token that is not accepted, which a stranger could make up without end. How many of these are asked
about at the same time, and in a second, is limited instead.
"""

from __future__ import annotations

import asyncio
import hashlib

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_fields, read_status
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.operator.monitoring.access_reviews import is_allowed
from trainmaster.operator.rights import METRICS_PATH, METRICS_READER

_TOKEN_REVIEWS = GVR("authentication.k8s.io", "v1", "tokenreviews")
_REMEMBER_SECONDS = 60.0
_REMEMBERED = 200
_AT_ONCE = 4
_UNKNOWN_PER_SECOND = 5.0
_UNKNOWN_AT_ONCE = 20
_LONGEST_TOKEN = 16 * 1024
_FORBIDDEN = 403


class MetricsAccess:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[bytes, tuple[float, StatusError | None]] = {}
        """By a hash of the token: until when it is remembered, and the refusal, if it is one."""
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._unknown = TokenBuckets(clock, per_second=_UNKNOWN_PER_SECOND, burst=_UNKNOWN_AT_ONCE)

    async def check(self, header: str) -> None:
        """`header`: the request's Authorization. Raises StatusError: 401, 403, 429, or what the API server answers."""
        token = _read_token(header)
        key = hashlib.sha256(token.encode()).digest()
        until, refusal = self._known.get(key, (0.0, None))
        if self._clock.monotonic() >= until:
            refusal = await self._ask(token, key)
        if refusal is not None:
            raise refusal

    async def _ask(self, token: str, key: bytes) -> StatusError | None:
        # Tokens that were accepted before do not wait for those of strangers.
        if key not in self._known and not self._unknown.take("unknown"):
            raise StatusError(429, "TooManyRequests", "too many tokens to ask the API server about", retry_after=1)
        try:
            async with self._slots:
                refusal = await self._review(token)
        except (StatusError, OSError) as error:
            text = f"the API server cannot be asked about this token: {error}"
            raise StatusError(503, "ServiceUnavailable", text) from error
        self._known.pop(key, None)
        if refusal is None or refusal.code == _FORBIDDEN:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = (self._clock.monotonic() + _REMEMBER_SECONDS, refusal)
        return refusal

    async def _review(self, token: str) -> StatusError | None:
        """The refusal, if it is one. Raises StatusError if the API server does not answer these questions."""
        asked = {"apiVersion": _TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}}
        found = read_status(await self._client.create(_TOKEN_REVIEWS, asked))
        if not found.get("authenticated"):
            return _refuse_token()
        user = read_fields(found, "user")
        name = str(user.get("username", ""))
        who: Object = {"user": name, **{key: user[key] for key in ("groups", "uid", "extra") if user.get(key)}}
        what = {"nonResourceAttributes": {"path": METRICS_PATH, "verb": "get"}}
        if await is_allowed(self._client, who, what):
            return None
        text = f'user "{name}" may not get {METRICS_PATH}: bind it to the ClusterRole {METRICS_READER}'
        return StatusError(_FORBIDDEN, "Forbidden", text)


def _read_token(header: str) -> str:
    scheme, *credentials = header.split() or [""]
    if scheme.lower() != "bearer" or len(credentials) != 1 or len(credentials[0]) > _LONGEST_TOKEN:
        raise _refuse_token()
    return credentials[0]


def _refuse_token() -> StatusError:
    return StatusError(401, "Unauthorized", "metrics are for a bearer token that the API server accepts")
