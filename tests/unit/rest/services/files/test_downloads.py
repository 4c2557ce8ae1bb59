"""Tickets for downloads: each serves once, for a minute."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable

import pytest

from trainmaster.kit.ids import SeededIds
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.files.contract import OpenedFile
from trainmaster.rest.services.files.downloads import SECONDS, Downloads
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


async def open_file() -> OpenedFile:
    return OpenedFile("a.txt", 1, io.BytesIO(b"x"))


def play(scene: Callable[[Downloads, VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await scene(Downloads(clock, SeededIds(1)), clock)

    run_virtual(main(), limit=3_600)


async def is_refused(downloads: Downloads, text: str) -> bool:
    try:
        (await downloads.redeem(text)).stream.close()
    except Problem as problem:
        assert problem.status == 404
        return True
    return False


def test_a_ticket_serves_once() -> None:
    async def scene(downloads: Downloads, clock: VirtualClock) -> None:
        ticket = downloads.issue("ann", open_file)
        assert len(ticket.text) >= 43 and ticket.text not in repr(ticket)
        assert not await is_refused(downloads, ticket.text)
        assert await is_refused(downloads, ticket.text)
        assert await is_refused(downloads, "") and await is_refused(downloads, "guess\udcff")

    play(scene)


def test_a_ticket_expires() -> None:
    async def scene(downloads: Downloads, clock: VirtualClock) -> None:
        ticket = downloads.issue("ann", open_file)
        await clock.sleep(SECONDS + 1)
        assert await is_refused(downloads, ticket.text)

    play(scene)


def test_the_oldest_of_one_user_gives_way_and_others_keep_theirs() -> None:
    async def scene(downloads: Downloads, clock: VirtualClock) -> None:
        other = downloads.issue("bob", open_file)
        first = downloads.issue("ann", open_file)
        for _ in range(50):
            downloads.issue("ann", open_file)
        assert await is_refused(downloads, first.text)
        assert not await is_refused(downloads, other.text)
        for number in range(100):
            for _ in range(10):
                try:
                    downloads.issue(f"user-{number}", open_file)
                except Problem as problem:
                    assert (problem.status, problem.retry_after) == (429, 60)
                    return
        raise AssertionError("there is no limit")

    play(scene)


def test_rights_are_checked_when_the_ticket_is_used() -> None:
    async def scene(downloads: Downloads, clock: VirtualClock) -> None:
        async def refuse() -> OpenedFile:
            raise Problem(403, "forbidden", "revoked")

        ticket = downloads.issue("ann", refuse)
        with pytest.raises(Problem, match="revoked"):
            await downloads.redeem(ticket.text)

    play(scene)
