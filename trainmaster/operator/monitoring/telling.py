"""Says what keeps an operator from working, once when it begins and once when it is over: in the log, and as an event.

The event is about the Pod of the operator, which it knows from its token, else about its Lease. Troubles are
asked for every few seconds and never raise: an operator waits for what somebody else has to mend, unready, because a
Pod that ends again and again hides its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.client.events import BufferedEventRecorder, build_event, write_event
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.troubles import VARYING, OperatorTrouble

log = logging.getLogger(__name__)

COMPONENT = "trainmaster-operator"
_LOOK_SECONDS = 3.0
"""What passes sooner, such as a connection that is cut, is not worth a sentence."""
_END_SECONDS = 3.0

Look = Callable[[], Iterable[OperatorTrouble]]


class Telling:
    def __init__(self, recorder: BufferedEventRecorder, about: Object, clock: Clock) -> None:
        """`about`: the object of the events, with apiVersion, kind and metadata."""
        self._recorder = recorder
        self._about = about
        self._clock = clock
        self._looks: list[Look] = []
        self._starting: OperatorTrouble | None = None
        self._told: dict[str, str] = {}
        """By reason: the text."""

    def add(self, look: Look) -> None:
        """A place to look for troubles."""
        self._looks.append(look)

    def note_start(self, trouble: OperatorTrouble | None) -> None:
        """What a step of the start waits for; None: nothing any more."""
        self._starting = trouble

    def list_troubles(self) -> list[OperatorTrouble]:
        found = [self._starting] if self._starting is not None else []
        return list(dict.fromkeys([*found, *(trouble for look in self._looks for trouble in look())]))

    def tell(self) -> None:
        found = {trouble.reason: trouble.text for trouble in self.list_troubles()}
        for reason, text in found.items():
            before = self._told.get(reason)
            if before is None or (before != text and reason not in VARYING):
                log.warning(text, extra={"action": "operator.trouble", "reason": reason})
                self._recorder.record(self._about, reason, text, warning=True)
        for reason in sorted(self._told.keys() - found.keys()):
            log.info("trouble is over", extra={"action": "operator.recovered", "reason": reason})
        self._told = found

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.tell()


@asynccontextmanager
async def telling(client: Client, about: Object, clock: Clock) -> AsyncIterator[Telling]:
    recorder = BufferedEventRecorder(client, clock=clock, component=COMPONENT)
    async with recorder, Scope("telling") as scope:
        told = Telling(recorder, about, clock)
        scope.spawn_forever(told.run(), name="operator.telling")
        yield told


async def tell_end(client: Client, about: Object, text: str, clock: Clock) -> None:
    """An event with the sentence with which the operator ends. It is no reason to end otherwise that it cannot be
    written."""
    now = clock.now()
    event = build_event(about, "OperatorEnded", text, now, component=COMPONENT, warning=True)
    with suppress(StatusError, OSError):
        async with asyncio.timeout(_END_SECONDS):
            await write_event(client, event, count=1, last=now)
