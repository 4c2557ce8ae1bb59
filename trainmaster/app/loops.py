"""Which event loop a process runs on: uvloop's where it is wanted and installed, else asyncio's own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable


def find_loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory
