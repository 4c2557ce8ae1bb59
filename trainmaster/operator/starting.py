"""The start of an operator: what it asks of the cluster before it works, and how long it goes on asking.

What this process got wrong (a port, a file, a flag) ends the start with one sentence (OSError). What passes by itself,
or with what somebody does to the cluster, does not: an API server that is away or too busy, a missing right, expired
credentials. Then it is asked again, `/healthz` answers, and `/readyz`, the log and an event say what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainmaster.api.status import StatusError
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.operator.monitoring.troubles import OperatorTrouble, explain_refusal

log = logging.getLogger(__name__)

_PAUSES = BackoffPolicy(first=0.5, cap=15.0)
_CURABLE = (401, 403, 404, 429)

T = TypeVar("T")


class StartSteps:
    """The steps of one start."""

    def __init__(self, clock: Clock, namespace: str, note: Callable[[OperatorTrouble | None], None]) -> None:
        """`namespace`: the operator's own. `note` is told what a step waits for, and when it does no more."""
        self._clock = clock
        self._namespace = namespace
        self._note = note

    async def persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Tries again for as long as the cluster does not answer, or refuses what others can allow. Raises what else
        goes wrong."""
        pauses = Backoff(_PAUSES)
        while True:
            try:
                result = await attempt()
            except StatusError as error:
                if error.code < 500 and error.code not in _CURABLE:
                    raise
                self._note(explain_refusal(error, self._namespace))
                log.info("waiting for the cluster", extra={"action": "operator.waiting", "error": str(error)})
                await self._clock.sleep(pauses.next())
            else:
                self._note(None)
                return result
