"""Who may read the operator's metrics, and how often the API server is asked about that."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.operator.monitoring.wire import HOSTILE, ask, list_codes, speak
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.kit.metrics import CounterSpec, Metrics
from trainmaster.operator.monitoring.metrics_access import MetricsAccess
from trainmaster.operator.monitoring.metrics_server import MetricsPort, MetricsSettings
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

GOOD, POOR = "Authorization: Bearer good", "Authorization: Bearer poor"
SETTINGS = MetricsSettings("127.0.0.1", 0)


class Reviewer:
    """An API server that knows the tokens `good` and `poor`, whose owner may not read metrics."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.away = False

    async def create(self, gvr: GVR, obj: Object, namespace: str = "", **_: Any) -> Object:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "nobody answers")
        self.asked.append(obj)
        spec = obj["spec"]
        if gvr.plural == "tokenreviews":
            known = spec["token"] in ("good", "poor")
            user = {"username": spec["token"], "groups": ["system:authenticated"], "uid": "u", "extra": {"a": ["b"]}}
            return {"status": {"authenticated": True, "user": user} if known else {}}
        return {"status": {"allowed": spec["user"] == "good"}}


def make_port(reviewer: Reviewer, clock: VirtualClock) -> MetricsPort:
    metrics = Metrics()
    metrics.counter(CounterSpec("things_total", "Things.")).add()
    return MetricsPort(metrics, SETTINGS, clock, MetricsAccess(cast(Client, reviewer), clock))


def test_metrics_are_for_those_who_may_get_them() -> None:
    async def main() -> None:
        reviewer = Reviewer()
        async with make_port(reviewer, VirtualClock()) as port:
            code, text = await ask(port, "GET /metrics", GOOD)
            assert code == 200 and "things_total 1" in text
            token, access = reviewer.asked
            assert token["spec"] == {"token": "good"}
            assert access["spec"] == {
                "user": "good",
                "groups": ["system:authenticated"],
                "uid": "u",
                "extra": {"a": ["b"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            }
            code, text = await ask(port, "GET /metrics", POOR)
            assert code == 403 and 'user "poor" may not get /metrics' in text

    run_virtual(main())


@pytest.mark.parametrize(
    ("line", "header", "code"),
    [
        ("GET /metrics", "X: y", 401),
        ("GET /metrics", "Authorization: Bearer", 401),
        ("GET /metrics", "Authorization: Bearer bad", 401),
        ("GET /metrics", "Authorization: Bearer two words", 401),
        ("GET /metrics", "Authorization: Basic good", 401),
        ("GET /metrics", f"Authorization: Bearer {'x' * 20_000}", 401),
        ("GET /other", "X: y", 401),
        ("GET /other", GOOD, 404),
        ("POST /metrics", GOOD, 405),
    ],
)
def test_nobody_else_learns_anything(line: str, header: str, code: int) -> None:
    async def main() -> None:
        async with make_port(Reviewer(), VirtualClock()) as port:
            found, text = await ask(port, line, header)
            assert found == code and "things" not in text

    run_virtual(main())


@pytest.mark.parametrize(("data", "codes"), HOSTILE)
def test_what_is_no_request_ends_the_connection(data: bytes, codes: list[int]) -> None:
    async def main() -> None:
        async with make_port(Reviewer(), VirtualClock()) as port:
            assert list_codes(await speak(port, data)) == codes

    run_virtual(main())


def test_a_decision_is_remembered_for_a_minute() -> None:
    async def main() -> None:
        reviewer, clock = Reviewer(), VirtualClock()
        async with make_port(reviewer, clock) as port:
            for header, code in ((GOOD, 200), (POOR, 403)):
                for _ in range(5):
                    assert (await ask(port, "GET /metrics", header))[0] == code
            assert len(reviewer.asked) == 4
            await clock.sleep(61)
            reviewer.away = True
            code, text = await ask(port, "GET /metrics", GOOD)
            assert code == 503 and "nobody answers" in text, "what was decided earlier is not valid for ever"

    run_virtual(main())


def test_made_up_tokens_do_not_keep_the_api_server_busy_nor_others_out() -> None:
    async def main() -> None:
        reviewer, clock = Reviewer(), VirtualClock()
        async with make_port(reviewer, clock) as port:
            assert (await ask(port, "GET /metrics", GOOD))[0] == 200
            await clock.sleep(61)
            codes = [(await ask(port, "GET /metrics", f"Authorization: Bearer {n}"))[0] for n in range(100)]
            assert codes[0] == 401 and codes[-1] == 429 and len(reviewer.asked) < 40
            assert (await ask(port, "GET /metrics", GOOD))[0] == 200

    run_virtual(main())
