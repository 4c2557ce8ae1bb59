"""A background worker for a set of keys, used by the garbage collector and the namespace controller.

Each key is handled synchronously; between slices the worker yields to other tasks, and to the disk. A key that fails is
logged and retried with increasing delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from trainmaster.api.status import StatusError
from trainmaster.kit.clock import Clock
from trainmaster.store.contract import Store

log = logging.getLogger(__name__)

K = TypeVar("K")

_SLICE_SECONDS = 0.002
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 30.0


class KeyedWorker(Generic[K]):
    def __init__(self, name: str, handle: Callable[[K], None], clock: Clock, store: Store) -> None:
        """`store`: what `handle` writes to."""
        self._name = name
        self._handle = handle
        self._clock = clock
        self._store = store
        self._keys: dict[K, None] = {}
        self._delays: dict[K, float] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, key: K) -> None:
        self._keys[key] = None
        self._idle.clear()
        self._wake.set()

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    async def idle(self) -> None:
        """Waits until all current keys are done (for tests and for stopping)."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = self._clock.monotonic()
            while self._keys:
                self._handle_one()
                if self._clock.monotonic() - began > _SLICE_SECONDS:
                    await asyncio.sleep(0)
                    await self._store.catch_up()
                    began = self._clock.monotonic()
            self._idle.set()

    def _handle_one(self) -> None:
        key = next(iter(self._keys))
        del self._keys[key]
        try:
            self._handle(key)
        except StatusError as error:
            log.warning("clean-up refused, trying again", extra={"worker": self._name, "key": key, "error": str(error)})
            self._try_again(key)
        except Exception:
            log.exception("clean-up failed, trying again", extra={"worker": self._name, "key": key})
            self._try_again(key)
        else:
            self._delays.pop(key, None)

    def _try_again(self, key: K) -> None:
        delay = self._delays[key] = min(_LONGEST_DELAY, self._delays.get(key, _FIRST_DELAY / 2) * 2)
        asyncio.get_running_loop().call_later(delay, self.add, key)
