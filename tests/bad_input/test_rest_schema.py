"""Requests generated from the REST API's own OpenAPI document, as a tenant and in process: nothing is answered 5xx, and
every answer fits the document. Valid and broken requests take turns until the time is over.

The application runs in a thread of its own, with controllers and a scripted node behind it, because schemathesis is not
asynchronous.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from jsonschema_rs import Draft202012Validator
from schemathesis.generation import GenerationMode

from tests.support.rest_plant import RestPlant, running_rest_plant
from tests.unit.rest.asgi import Answer
from trainmaster.app.settings import Rest, Settings
from trainmaster.kit.clock import SystemClock

pytestmark = [pytest.mark.bad_input, pytest.mark.timeout(240)]

BUDGET_SECONDS = 25.0
ARCHIVES = ["application/gzip", "application/x-gzip", "application/x-tar", "application/zip"]
_QUIET = settings(
    max_examples=3, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@dataclass
class Desk:
    loop: asyncio.AbstractEventLoop
    done: asyncio.Event
    plant: RestPlant
    token: str
    job: str
    document: dict[str, Any]
    statuses: dict[int, int] = field(default_factory=dict)

    def send(self, prepared: requests.PreparedRequest) -> Answer:
        body: Any = prepared.body or b""
        names = [(name, value) for name, value in prepared.headers.items() if name.lower() not in _OWN]
        headers = [(name, value if isinstance(value, str) else value.decode("latin-1")) for name, value in names]
        work = self.plant.rest.call(
            str(prepared.method),
            str(prepared.url).removeprefix("http://rest"),
            token=self.token,
            headers=headers,
            pieces=[body.encode() if isinstance(body, str) else body],
            content_type=str(prepared.headers.get("content-type") or "application/json"),
        )
        try:
            answer = asyncio.run_coroutine_threadsafe(work, self.loop).result(20)
        except TimeoutError:
            raise AssertionError(f"no answer to {prepared.method} {prepared.url} {headers} {body[:500]!r}") from None
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        return answer

    def check(self, answer: Answer, path: str, method: str) -> None:
        assert answer.status < 500, (method, path, answer.body)
        responses = self.document["paths"][path][method.lower()]["responses"]
        described = responses.get(str(answer.status)) or responses["default"]
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if not answer.body and "content" not in described:
            return
        assert kind in described["content"], (method, path, answer.status, kind, answer.body[:300])
        if kind.endswith("json"):
            schema = {**described["content"][kind]["schema"], "components": self.document["components"]}
            Draft202012Validator(schema).validate(answer.json())


_OWN = ("authorization", "content-length", "content-type", "cookie", "transfer-encoding")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    ready: Future[Desk] = Future()

    async def main(folder: Path) -> None:
        rules = replace(Settings(), rest=Rest(requests_per_second=0.0))
        async with running_rest_plant(folder, settings=rules, clock=SystemClock()) as plant:
            token = await plant.rest.add_tenant("ann", allowance={"jobs": 100_000})
            body = {"framework": "pytorch", "code": "print(1)\n"}
            made = (await plant.call("POST", "/api/v1/jobs", token, body)).json()
            document = (await plant.call("GET", "/openapi.json", None)).json()
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            ready.set_result(Desk(loop, done, plant, token, made["name"], document))
            await done.wait()

    def run() -> None:
        try:
            asyncio.run(main(tmp_path_factory.mktemp("schema")))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    made = ready.result(60)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(made.done.set)
        thread.join(60)


def send(desk: Desk, case: Any, operation: Any) -> None:
    kwargs = case.as_transport_kwargs(base_url="http://rest")
    kwargs.pop("cookies", None)
    try:
        prepared = requests.Request(**kwargs).prepare()
        for value in prepared.headers.values():
            (value if isinstance(value, bytes) else value.encode("ascii"))
    except (requests.exceptions.RequestException, UnicodeError):
        return  # not even a client library would send it
    answer = desk.send(prepared)
    if answer.status not in (404, 405) or "/api/" in str(prepared.url):
        desk.check(answer, operation.path, operation.method)


def run(desk: Desk, operation: Any, mode: GenerationMode, number: int) -> None:
    @seed(number)
    @_QUIET
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        if "{name}" in operation.path and "/tenants/" not in operation.path and number % 2 == 0:
            # A job that is there, every other time.
            case.path_parameters = {**(case.path_parameters or {}), "name": desk.job}
        send(desk, case, operation)

    # Some operations have nothing that could be broken.
    with suppress(Unsatisfiable):
        attempt()


def test_requests_from_the_document_are_answered_as_it_says(desk: Desk) -> None:
    schemathesis.serializer.alias(ARCHIVES, "application/octet-stream")
    schema = schemathesis.openapi.from_dict(desk.document)
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]  # an Err raises
    assert len(operations) > 25
    random.Random(1).shuffle(operations)
    deadline, rounds = time.monotonic() + BUDGET_SECONDS, 0
    while time.monotonic() < deadline or not rounds:
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                run(desk, operation, mode, rounds)
            if time.monotonic() >= deadline and rounds:
                break
        rounds += 1
    assert {200, 201, 404, 422} <= set(desk.statuses), desk.statuses


def test_every_operation_of_ours_has_an_example(desk: Desk) -> None:
    for path, item in desk.document["paths"].items():
        if not path.startswith("/api/v1"):
            continue
        for method, operation in item.items():
            success = next(found for code, found in operation["responses"].items() if code[0] == "2")
            for kind, content in success.get("content", {}).items():
                schema = content.get("schema") or {}
                named = desk.document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
                assert content.get("example") or named.get("examples"), (method, path, kind)
                for example in named.get("examples") or ():
                    whole = {**schema, "components": desk.document["components"]}
                    Draft202012Validator(whole).validate(example)
