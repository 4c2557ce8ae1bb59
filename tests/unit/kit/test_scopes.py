from __future__ import annotations

import asyncio
import logging

import pytest

from trainmaster.kit.scopes import EndedEarly, Scope, finish
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


async def _forever() -> None:
    await asyncio.Event().wait()


async def _fail() -> None:
    raise KeyError("broken")


def test_leaving_a_scope_cancels_its_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await _forever()
        finally:
            await asyncio.sleep(5)
            ended.append("tidy")

    async def main() -> None:
        async with Scope("test") as scope:
            scope.spawn(work(), name="work")
            await asyncio.sleep(1)
        assert ended == ["tidy"]

    run_virtual(main())


def test_a_failing_task_ends_the_scope_with_its_own_error() -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="broken"):
            async with Scope("test") as scope:
                scope.spawn(_fail(), name="fail")
                await asyncio.sleep(3600)
        assert VirtualClock().monotonic() < 1

    run_virtual(main())


def test_an_error_of_the_body_leaves_the_scope_as_itself() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Scope("test") as scope:
                scope.spawn(_forever(), name="forever")
                raise ZeroDivisionError

    run_virtual(main())


def test_two_errors_leave_the_scope_as_a_group() -> None:
    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with Scope("test") as scope:
                scope.spawn(_fail(), name="one")
                scope.spawn(_fail(), name="two")
                await _forever()
        assert len(caught.value.exceptions) == 2

    run_virtual(main())


def test_a_task_that_should_run_forever_may_not_return() -> None:
    async def main() -> None:
        with pytest.raises(EndedEarly, match="server returned"):
            async with Scope("test") as scope:
                scope.spawn_forever(asyncio.sleep(5), name="server")
                await _forever()

    run_virtual(main())


def test_a_guarded_task_fails_alone_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        async with Scope("test") as scope:
            scope.spawn_guarded(_fail(), name="connection 7")
            await asyncio.sleep(1)
            return "alive"

    with caplog.at_level(logging.ERROR):
        assert run_virtual(main()) == "alive"
    assert [record.task for record in caplog.records] == ["connection 7"]  # type: ignore[attr-defined]  # an extra


def test_a_task_cancelled_before_its_first_step_is_no_complaint() -> None:
    async def main() -> None:
        async with Scope("test") as scope:
            scope.spawn_forever(_forever(), name="forever")
            scope.spawn_guarded(_forever(), name="guarded")
            scope.spawn(_forever(), name="plain")

    run_virtual(main())


def test_cancelling_the_owner_of_a_scope_ends_all_and_stays_a_cancellation() -> None:
    async def owner() -> None:
        async with Scope("test") as scope:
            scope.spawn(_forever(), name="forever")
            await _forever()

    async def main() -> None:
        task = asyncio.ensure_future(owner())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_a_clean_up_ends_although_its_caller_is_cancelled_twice() -> None:
    done: list[str] = []

    async def clean_up() -> str:
        await asyncio.sleep(10)
        done.append("clean")
        return "result"

    async def owner() -> None:
        try:
            await _forever()
        finally:
            assert await finish(clean_up(), limit=60) == "result"

    async def main() -> None:
        task = asyncio.ensure_future(owner())
        for _ in range(3):
            await asyncio.sleep(1)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["clean"]

    run_virtual(main())


def test_a_clean_up_has_a_time_limit() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError, match="took longer than 5"):
            await finish(_forever(), limit=5)
        assert VirtualClock().monotonic() == pytest.approx(5)

    run_virtual(main())


def test_the_error_of_a_clean_up_reaches_the_caller() -> None:
    async def main() -> None:
        with pytest.raises(KeyError):
            await finish(_fail(), limit=5)

    run_virtual(main())
