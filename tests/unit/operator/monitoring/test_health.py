"""Probes: what makes a replica unready, and what the port answers to people who do not ask for that."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

import pytest

from tests.unit.client.fake import FakeClient, ScriptedWatch, make_object
from tests.unit.operator.monitoring.wire import HOSTILE, ask, list_codes, speak
from trainmaster.api.meta import GVR
from trainmaster.api.status import StatusError
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import ObjectList, WatchOptions
from trainmaster.operator.monitoring.health import (
    LONGEST_TROUBLE,
    CacheCheck,
    CertificateCheck,
    HealthPort,
    HealthSettings,
    Readiness,
)
from trainmaster.testing.virtual import START, VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

PODS = GVR("", "v1", "pods")
SETTINGS = HealthSettings("127.0.0.1", 0)
AWAY = StatusError(503, "ServiceUnavailable", "nobody answers")


def make_port(readiness: Readiness) -> HealthPort:
    return HealthPort(readiness, SETTINGS, VirtualClock())


def test_an_operator_that_starts_is_alive_and_not_ready() -> None:
    async def main() -> None:
        readiness = Readiness()
        async with make_port(readiness) as port:
            assert await ask(port, "GET /healthz") == (200, "ok")
            code, text = await ask(port, "GET /readyz")
            assert code == 503 and "[-]start failed: the operator is starting" in text
            readiness.finish_start()
            assert await ask(port, "GET /readyz") == (200, "ok")

    run_virtual(main())


def test_every_check_is_named_on_request_and_one_that_fails_says_why() -> None:
    async def main() -> None:
        readiness, trouble = Readiness(), [""]
        readiness.finish_start()
        readiness.add("cache", lambda: "")
        readiness.add("certificate", lambda: trouble[0])
        async with make_port(readiness) as port:
            passed = "[+]ping ok\n[+]cache ok\n[+]certificate ok\nreadyz check passed\n"
            assert await ask(port, "GET /readyz?verbose") == (200, passed)
            assert await ask(port, "GET /healthz?verbose=1") == (200, "[+]ping ok\nhealthz check passed\n")
            trouble[0] = "it expired"
            failed = "[+]ping ok\n[+]cache ok\n[-]certificate failed: it expired\nreadyz check failed\n"
            assert await ask(port, "GET /readyz") == (503, failed)
            assert (await ask(port, "GET /healthz"))[0] == 200

    run_virtual(main())


@pytest.mark.parametrize(
    ("line", "code"),
    [("GET /", 404), ("GET /metrics", 404), ("GET /healthz/", 404), ("POST /healthz", 405), ("DELETE /readyz", 405)],
)
def test_probes_are_all_that_the_port_answers(line: str, code: int) -> None:
    async def main() -> None:
        async with make_port(Readiness()) as port:
            assert (await ask(port, line))[0] == code

    run_virtual(main())


@pytest.mark.parametrize(("data", "codes"), HOSTILE)
def test_what_is_no_request_ends_the_connection(data: bytes, codes: list[int]) -> None:
    async def main() -> None:
        async with make_port(Readiness()) as port:
            assert list_codes(await speak(port, data)) == codes

    run_virtual(main())


def test_a_cache_that_was_never_filled_says_what_is_missing() -> None:
    async def main() -> None:
        client = FakeClient()
        client.lists = [StatusError(403, "Forbidden", "pods is forbidden"), ObjectList([make_object("p", 3)], "10")]
        client.watches = [ScriptedWatch([], hang=True)]
        clock = VirtualClock()
        cache = WatchCache(client, [PODS], clock=clock)
        check = CacheCheck(cache, clock)
        assert check() == "pods are not listed yet"
        async with cache:
            await settle()
            assert check() == "pods are not listed yet: pods is forbidden"
            await cache.wait_synced()
            assert check() == ""

    run_virtual(main())


class Refused(ScriptedWatch):
    """A watch that is never opened."""

    async def __aenter__(self) -> Self:
        raise AWAY


class ServerThatLeaves(FakeClient):
    away = True

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = WatchOptions()) -> ScriptedWatch:  # noqa: B008
        return Refused([]) if self.away else ScriptedWatch([], hang=True)


def test_a_watch_that_fails_for_too_long_is_stale_until_it_works_again() -> None:
    async def main() -> None:
        client, clock = ServerThatLeaves(), VirtualClock()
        client.lists = [ObjectList([], "10")]
        async with WatchCache(client, [PODS], clock=clock) as cache:
            check = CacheCheck(cache, clock)
            await cache.wait_synced()
            await clock.sleep(LONGEST_TROUBLE - 1)
            assert check() == "", "an API server that restarts is back sooner"
            await clock.sleep(2)
            assert check() == f"no news of pods for {LONGEST_TROUBLE + 1:.0f} s: nobody answers"
            client.away = False
            await clock.sleep(LONGEST_TROUBLE)
            assert check() == "", "the next attempt is at most half a minute away"

    run_virtual(main())


def test_a_quiet_watch_is_not_stale() -> None:
    """It ends by itself after some minutes, and the next one begins."""

    async def main() -> None:
        client, clock = ServerThatLeaves(), VirtualClock()
        client.away = False
        client.lists = [ObjectList([], "10")]
        async with WatchCache(client, [PODS], clock=clock) as cache:
            check = CacheCheck(cache, clock)
            await cache.wait_synced()
            for _ in range(60):
                await clock.sleep(60)
                assert check() == ""

    run_virtual(main())


@pytest.mark.parametrize(
    ("expires", "trouble"),
    [
        (None, ""),
        (START + timedelta(seconds=1), ""),
        (START, "it expired at 2026-01-01T00:00:00Z"),
    ],
)
def test_a_certificate_is_good_until_its_end(expires: datetime | None, trouble: str) -> None:
    async def main() -> None:
        assert CertificateCheck(lambda: expires, VirtualClock())() == trouble

    run_virtual(main())
