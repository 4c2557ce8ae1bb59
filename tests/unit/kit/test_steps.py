"""Computations in steps: others run between two steps, and the result is the same as without them."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.kit.steps import Steps, finish_steps, take_steps
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def add_up(count: int, seen: list[str]) -> Steps[int]:
    for number in range(count):
        seen.append(f"step {number}")
        yield
    return sum(range(count))


def test_others_run_between_two_steps() -> None:
    async def main() -> None:
        seen: list[str] = []
        asyncio.get_running_loop().call_soon(seen.append, "other")
        assert await take_steps(add_up(2, seen)) == 1
        assert seen == ["step 0", "other", "step 1"]

    run_virtual(main())


def test_all_steps_at_once_give_the_same_result() -> None:
    assert finish_steps(add_up(4, [])) == 6
