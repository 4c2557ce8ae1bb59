"""What holds for every request, whatever the routes do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.rest_routes import ALL_ROUTES, ROUTES
from tests.unit.rest.asgi import Answer, call
from trainmaster.api import status
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.addresses import TrustedProxies
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SeededIds
from trainmaster.rest.application import build_routes
from trainmaster.rest.callers import Caller, ReviewingCallers, SeenClient
from trainmaster.rest.contract import Backend, JobTools, RestLimits
from trainmaster.rest.edge import Edge
from trainmaster.rest.logins.logins import Logins
from trainmaster.rest.logins.storage import MemoryStorage
from trainmaster.rest.models.problems import ProblemDocument
from trainmaster.rest.rates import Rates
from trainmaster.rest.routes.table import RULES
from trainmaster.rest.services.creation.guide_jobs import GuideJobs
from trainmaster.rest.services.creation.new_jobs import NewJobs
from trainmaster.rest.services.creation.server_fields import ServerFields
from trainmaster.rest.services.creation.templates import Templates
from trainmaster.rest.services.files.downloads import Downloads
from trainmaster.rest.services.files.job_files import JobFiles
from trainmaster.rest.services.history import HistoryService
from trainmaster.rest.services.job_reader import JobReader
from trainmaster.rest.services.live.sources import Sources
from trainmaster.rest.services.log_windows import LogWindows
from trainmaster.rest.services.records import NoRecords
from trainmaster.rest.services.sign_up import SignUpRules
from trainmaster.rest.services.streams import Streams
from trainmaster.rest.services.tenants import TenantService
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class OnlyGood:
    """Knows one token."""

    def __init__(self, client: SeenClient | None = None) -> None:
        self._client = client

    async def identify(self, token: str) -> Caller:
        if token != "good":
            raise status.unauthorized()
        return Caller(ActingIdentity("alice"), self._client)  # type: ignore[arg-type]


async def ready() -> None:
    """As it should be."""


async def explain(*asked: Any) -> None:
    """Knows no job."""


def build_backend(callers: Any = None, limits: RestLimits | None = None) -> Backend:
    clock = SystemClock()
    jobs = GuideJobs(Templates(), ServerFields(read_fields, clock), clock)
    known = callers or OnlyGood(_Silent())  # type: ignore[arg-type]
    desk = TenantService(_Silent(), clock, sign_up=SignUpRules(), on_cluster=False)  # type: ignore[arg-type]
    reader, rates = JobReader(NoRecords(), clock), Rates(clock, 50.0, 200)
    return Backend(
        known,
        clock,
        SeededIds(1),
        jobs,
        reader,
        desk,
        rates,
        ready,
        HistoryService(None),
        explain,
        explain,  # type: ignore[arg-type]  # nobody asks
        explain,  # type: ignore[arg-type]  # nobody asks
        Streams(),
        Sources(clock),
        NewJobs(jobs, HistoryService(None), None),
        Logins(known, MemoryStorage(), clock, SeededIds(2)),
        LogWindows(clock),
        JobTools(explain, JobFiles(None, None), Downloads(clock, SeededIds(3))),  # type: ignore[arg-type]  # nobody asks
        limits or RestLimits(),
    )


async def read_fields() -> frozenset[str]:
    return frozenset()


class _Silent:
    """A client that saw nothing."""

    async def settle(self) -> None:
        return None


def build_edge(backend: Backend) -> Edge:
    """The application with one more route, which fails or reads its body."""
    routes = build_routes(backend)

    async def fail() -> None:
        raise RuntimeError("secret words")

    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return body

    routes.add_api_route("/fail", fail)
    routes.add_api_route("/echo", echo, methods=["POST"])
    return Edge(routes, backend, RULES)


def ask(method: str, url: str, *, backend: Backend | None = None, **more: Any) -> Answer:
    return asyncio.run(call(build_edge(backend or build_backend()), method, url, **more))


def check_problem(answer: Answer, code: int) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    data: dict[str, Any] = answer.json()
    ProblemDocument.model_validate(data)
    assert (answer.status, data["status"]) == (code, code)
    assert data["request_id"] == answer.headers["x-request-id"]
    return data


def test_every_route_but_the_public_ones_needs_a_token() -> None:
    assert {path for _, path in ALL_ROUTES} >= {"/healthz", "/docs"}
    for method, path in ALL_ROUTES:
        answer = ask(method, path.replace("{", "").replace("}", ""), token=None)
        if (method, path) in ROUTES:
            check_problem(answer, 401)
        else:
            assert answer.status != 401, path


@pytest.mark.parametrize(
    "path", ["/nothing", "/docs/", "/healthz/../echo", "//docs", "/docs/..%2fecho", "/DOCS", "/healthz/"]
)
def test_a_path_that_is_not_exactly_public_needs_a_token(path: str) -> None:
    assert check_problem(ask("GET", path, token=None), 401)["hint"].startswith("send `Authorization: Bearer")


@pytest.mark.parametrize("value", ["good", "Basic good", "Bearer", "Bearer ", "bearer: good", "Bearer g\u00f6od"])
def test_what_is_no_bearer_token_is_nobody(value: str) -> None:
    answer = ask("GET", "/echo", token=None, headers=[("Authorization", value)])
    assert check_problem(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_two_tokens_are_refused() -> None:
    answer = ask("GET", "/fail", headers=[("authorization", "Bearer evil")])
    assert "stands twice" in check_problem(answer, 400)["detail"]


def test_an_unexpected_error_has_an_id_and_tells_nothing() -> None:
    answer = ask("GET", "/fail")
    check_problem(answer, 500)
    assert b"secret" not in answer.body


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(announced: bool) -> None:
    backend = build_backend(limits=RestLimits(body_bytes=100))
    pieces = None if announced else [b'{"text": "', b"x" * 60, b"x" * 60, b'"}']
    answer = ask("POST", "/echo", backend=backend, body={"text": "x" * 120}, pieces=pieces)
    assert "more than 100 bytes" in check_problem(answer, 413)["detail"]


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    backend = build_backend(limits=RestLimits(body_seconds=0.01))
    check_problem(ask("POST", "/echo", backend=backend, pieces=[b'{"text": '], stall=True), 408)


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    backend = build_backend(limits=RestLimits(body_bytes=20))
    assert ask("POST", "/echo", backend=backend, pieces=[b'{"text": "', b'12345678"}']).json() == {"text": "12345678"}


@pytest.mark.parametrize("raw", [b"{", b"[1]", b'"x"', b'{"a": "\xff"}', b""])
def test_a_body_that_is_no_json_object_is_a_problem(raw: bytes) -> None:
    answer = ask("POST", "/echo", pieces=[raw])
    assert answer.status in (400, 422)
    check_problem(answer, answer.status)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain; charset=utf-8", ""])
def test_json_that_is_not_called_json_is_refused_with_the_header_to_send(content_type: str) -> None:
    # As `curl -d` sends it without -H.
    answer = ask("POST", "/api/v1/signup", token=None, body={"name": "ann"}, content_type=content_type)
    assert "`Content-Type: application/json`" in check_problem(answer, 415)["hint"]


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"config": {"num_nodes": 0}}, "/config/num_nodes", "must be at least 1, not 0"),
        ({"config": {"num_nodes": 10**30}}, "/config/num_nodes", "must be at most 100000"),
        ({"config": {"gpu_per_node": "A100"}}, "/config/gpu_per_node", "must be a whole number, not 'A100'"),
        ({"config": {"gpu_per_node": 0.5}}, "/config/gpu_per_node", "must be a whole number, not 0.5"),
        ({"config": {"gpus": 1}}, "/config/gpus", "there is no such field here"),
        ({}, "/namespace", "is missing"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_sent_and_what_it_must_be(
    body: dict[str, Any], pointer: str, words: str
) -> None:
    raw = json.dumps({"user_id": "alice", "framework": "pytorch", "training_code": "print(1)", **body}).encode()
    data = check_problem(ask("POST", "/api/trainjob/create", pieces=[raw]), 422)
    assert {"pointer": pointer, "detail": words} in data["errors"]


def test_a_parameter_that_is_missing_is_named() -> None:
    data = check_problem(ask("GET", "/api/trainjob/a-job-1/status"), 422)
    assert data["errors"] == [{"parameter": "namespace", "detail": "is missing"}]


@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/nothing", 404), ("DELETE", "/healthz", 405)])
def test_paths_and_methods_that_do_not_exist_are_problems(method: str, path: str, code: int) -> None:
    check_problem(ask(method, path), code)


def test_a_wrong_method_is_answered_with_all_right_ones() -> None:
    assert ask("PUT", "/healthz").headers["allow"] == "GET"
    assert ask("POST", "/api/trainjob/a-job-1").headers["allow"] == "DELETE"


def test_answers_are_neither_sniffed_nor_framed_nor_kept() -> None:
    headers = ask("GET", "/healthz").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"


def test_the_pages_load_nothing_from_elsewhere() -> None:
    for path in ("/docs", "/docs/docs.js", "/docs/docs.css"):
        answer = ask("GET", path, token=None)
        assert b"//" not in answer.body.replace(b"// Shows", b""), path
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_document_is_openapi_3_1_with_our_error_form() -> None:
    document = ask("GET", "/openapi.json", token=None).json()
    assert document["openapi"].startswith("3.1")
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for item in document["paths"].values():
        for operation in item.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]


# Tokens and durability, on a real registry


@asynccontextmanager
async def running(latest: int | None = None) -> AsyncIterator[tuple[Cluster, SeenClient]]:
    async with running_cluster() as cluster:
        store = cluster.store
        yield cluster, SeenClient(cluster.client, lambda: store.revision)


def test_what_was_seen_is_durable_before_the_answer_leaves() -> None:
    async def play() -> None:
        async with running() as (cluster, client):
            made = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
            assert client.seen == cluster.store.revision >= int(made["metadata"]["resourceVersion"])
            await client.settle()
            assert cluster.store.durable_revision >= client.seen
            reader = SeenClient(cluster.client, lambda: cluster.store.revision)
            await reader.get(CONFIG_MAPS, "a", "default")
            assert reader.seen == int(made["metadata"]["resourceVersion"])
            await client.delete(CONFIG_MAPS, "a", "default")
            assert client.seen == cluster.store.revision > reader.seen

    run_virtual(play())


def test_a_token_is_reviewed_and_the_call_made_as_its_owner() -> None:
    review = {"authenticated": True, "user": {"username": "bob", "uid": "7", "groups": ["x"], "extra": {"k": ["v"]}}}

    class Reviewer:
        async def create(self, gvr: object, obj: dict[str, Any]) -> dict[str, Any]:
            return {"status": review if obj["spec"]["token"] == "good" else {"user": {}, "error": "no"}}

    acted: list[tuple[ActingIdentity, str]] = []

    def act(identity: ActingIdentity, token: str) -> Any:
        acted.append((identity, token))
        return Reviewer()

    callers = ReviewingCallers(Reviewer(), act)  # type: ignore[arg-type]
    caller = asyncio.run(callers.identify("good"))
    assert caller.identity == ActingIdentity("bob", "7", ("x",), {"k": ("v",)})
    assert acted == [(caller.identity, "good")]
    with pytest.raises(status.StatusError) as refused:
        asyncio.run(callers.identify("bad"))
    assert refused.value.code == 401
    assert len(acted) == 1


@pytest.mark.parametrize(
    ("proxies", "lines", "client"),
    [
        ((), ["6.6.6.6"], "127.0.0.1"),
        (("127.0.0.0/8",), ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        (("127.0.0.0/8",), ["6.6.6.6", "198.51.100.1"], "198.51.100.1"),
        (("127.0.0.0/8",), [], "127.0.0.1"),
    ],
)
def test_the_client_is_whom_a_trusted_proxy_names(proxies: tuple[str, ...], lines: list[str], client: str) -> None:
    seen: list[tuple[str, int]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    backend = build_backend(limits=RestLimits(proxies=TrustedProxies(proxies)))
    headers = [("X-Forwarded-For", line) for line in lines]
    asyncio.run(call(Edge(app, backend, RULES), "GET", "/api/v1/jobs", headers=headers))
    assert [address for address, _ in seen] == [client]
