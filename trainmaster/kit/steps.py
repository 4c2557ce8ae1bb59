"""Long computations in steps: a generator yields where other tasks may run, and returns its result at the end.

Whoever drives it decides what happens between two steps: the engine lets the event loop run, tests do not. So the code
of a computation stays synchronous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def finish_steps(steps: Steps[T]) -> T:
    """Runs all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def take_steps(steps: Steps[T]) -> T:
    """Lets other tasks run between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
