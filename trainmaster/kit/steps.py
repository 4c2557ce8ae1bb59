"""Long computations in steps: a generator yields where other tasks may run, and returns its result at the end.

Whoever drives it decides what happens between two steps: the engine lets the event loop run, tests do not. So the code
of a computation stays synchronous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

_give_way = partial(asyncio.sleep, 0)


def finish_steps(steps: Steps[T]) -> T:
    """Runs all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def take_steps(steps: Steps[T], pause: Callable[[], Awaitable[None]] = _give_way) -> T:
    """Lets other tasks run between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await pause()
