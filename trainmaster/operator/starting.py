"""The start of an operator: what it asks of the cluster before it works, and how long it goes on asking.

What somebody has to change ends the start with one sentence (OSError). What passes by itself does not: an API server
that is away, or too busy, is asked again. Meanwhile `/healthz` answers and `/readyz` says what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainmaster.api.status import StatusError
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

_PAUSES = BackoffPolicy(first=0.5, cap=15.0)
_TOO_MANY = 429

T = TypeVar("T")


async def persist(clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """Tries again for as long as the API server cannot be reached or does not answer. Raises what else goes wrong."""
    pauses = Backoff(_PAUSES)
    while True:
        try:
            return await attempt()
        except StatusError as error:
            if error.code < 500 and error.code != _TOO_MANY:
                raise
            log.warning("waiting for the cluster", extra={"action": "operator.waiting", "error": str(error)})
            await clock.sleep(pauses.next())
