"""Failed logins are counted by address, also while they are under way; nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.rest.logins.failures import MOST_FAILURES, WINDOW_SECONDS, LoginFailures
from trainmaster.rest.problems import Problem
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def fail(failures: LoginFailures, address: str, status: int = 401) -> int:
    """The status that whoever tried gets."""
    try:
        with failures.attempt(address):
            raise Problem(status, "kind", "text")
    except Problem as problem:
        return problem.status


def test_the_sixth_failure_of_an_address_within_a_minute_is_refused() -> None:
    async def main() -> None:
        clock = VirtualClock()
        failures = LoginFailures(clock)
        assert [fail(failures, "10.0.0.1") for _ in range(MOST_FAILURES + 2)] == [401] * MOST_FAILURES + [429, 429]
        assert fail(failures, "10.0.0.2") == 401
        await clock.sleep(WINDOW_SECONDS)
        assert fail(failures, "10.0.0.1") == 401

    run_virtual(main())


def test_addresses_of_one_network_of_ipv6_count_together() -> None:
    async def main() -> None:
        failures = LoginFailures(VirtualClock())
        found = [fail(failures, f"2001:db8::{number:x}") for number in range(1, MOST_FAILURES + 2)]
        assert found[-1] == 429

    run_virtual(main())


def test_successes_and_failures_of_the_server_are_not_counted() -> None:
    async def main() -> None:
        failures = LoginFailures(VirtualClock())
        for _ in range(3 * MOST_FAILURES):
            with failures.attempt("10.0.0.1"):
                pass
            assert fail(failures, "10.0.0.1", 503) == 503
            with pytest.raises(OSError, match="away"), failures.attempt("10.0.0.1"):
                raise OSError("away")

    run_virtual(main())


def test_attempts_at_the_same_time_count_before_they_have_failed() -> None:
    async def main() -> None:
        failures = LoginFailures(VirtualClock())
        go = asyncio.Event()

        async def attempt() -> int:
            try:
                with failures.attempt("10.0.0.1"):
                    await go.wait()
                    raise Problem(401, "kind", "text")
            except Problem as problem:
                return problem.status

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt()) for _ in range(20)]
            await asyncio.sleep(0)
            go.set()
        assert sorted(task.result() for task in tasks) == [401] * MOST_FAILURES + [429] * (20 - MOST_FAILURES)

    run_virtual(main())


def test_addresses_that_are_over_are_forgotten() -> None:
    async def main() -> None:
        clock = VirtualClock()
        failures = LoginFailures(clock)
        for number in range(1_000):
            fail(failures, f"10.1.{number // 250}.{number % 250}")
        await clock.sleep(WINDOW_SECONDS + 1)
        fail(failures, "10.2.0.1")
        assert len(failures) == 1

    run_virtual(main())
