"""Logs that are fetched from an API server, as on a cluster: the end of each Pod's log, as windows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, LogOptions
from trainmaster.jobs.logs.beginning import RunSource
from trainmaster.jobs.logs.windows.merged import MergedLog, RunLog, Wish
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.rest.services.log_windows import _fetch

pytestmark = pytest.mark.unit

PLACE = PodPlace("jobset", 0, "node", 0, 0, "pod")


class Kubelet:
    def __init__(self, pieces: list[bytes], code: int = 0) -> None:
        self._pieces, self._code = pieces, code

    async def logs(self, name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        assert options.timestamps
        for piece in self._pieces:
            yield piece
        if self._code:
            raise StatusError(self._code, "Reason", "no log")


def fetch(*pieces: bytes, code: int = 0, most: int = 1 << 20) -> RunLog:
    client = cast("Client", Kubelet(list(pieces), code))
    return asyncio.run(_fetch(client, "ns", RunSource(PLACE, "node", 0), most))


def read(run: RunLog) -> list[tuple[str, Any]]:
    lines = MergedLog([run]).read(Wish(0, 1000)).lines
    return [(line.stored.time, line.stored.text) for line in lines]


def test_lines_of_any_precision_are_entries() -> None:
    run = fetch(b"the rest of a line\n2026-11-15T12:00:00.1Z one\n2026-11-15T12:00:", b"01Z two\n")
    assert read(run) == [("2026-11-15T12:00:00.100000000Z", b"one"), ("2026-11-15T12:00:01.000000000Z", b"two")]


def test_only_the_end_of_a_long_log_is_kept() -> None:
    lines = [b"2026-11-15T12:00:00.%09dZ line %d\n" % (number, number) for number in range(1000)]
    found = read(fetch(b"".join(lines[:500]), b"".join(lines[500:]), most=10_000))
    assert 100 < len(found) < 300
    assert found[-1][1] == b"line 999"


def test_long_lines_stay_whole() -> None:
    assert [text for _, text in read(fetch(b"2026-11-15T12:00:00Z " + b"x" * 100_000 + b"\n"))] == [b"x" * 100_000]


def test_a_log_that_the_server_does_not_have_is_empty() -> None:
    assert read(fetch(code=400)) == []
    with pytest.raises(StatusError):
        fetch(code=403)
