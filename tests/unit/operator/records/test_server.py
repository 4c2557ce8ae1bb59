"""The records port: what is answered, to whom, and that it is closed to everybody but API servers."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.apiserver.http.wire import FakeTransport
from tests.unit.history.test_archive import GONE, make_record
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity, Client
from trainmaster.edge.connection import Connection
from trainmaster.history.archive import Archive
from trainmaster.operator.records import server as records_server
from trainmaster.operator.records.access import RecordAccess
from trainmaster.operator.records.front_proxy import FrontProxyWatch
from trainmaster.operator.records.reading import ArchiveReader
from trainmaster.operator.records.server import RecordService, RecordsPort
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

BASE = "/apis/records.trainmaster.dev/v1alpha1"


class Reviewer:
    """An API server that allows what is in `allowed`: verb, plural, namespace."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed = allowed
        self.asked: list[Object] = []
        self.away = False

    async def create(self, gvr: GVR, obj: Object, namespace: str = "", **_: Any) -> Object:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "nobody answers")
        self.asked.append(obj["spec"])
        what = obj["spec"]["resourceAttributes"]
        return {"status": {"allowed": (what["verb"], what["resource"], what.get("namespace", "")) in self.allowed}}


@asynccontextmanager
async def serving(directory: Path, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RecordsPort]:
    """To whoever says who they are."""

    def read_caller(trusted: object, request: Any, now: float) -> ActingIdentity:
        if "x-remote-user" not in request.headers:
            raise StatusError(401, "Unauthorized", "who?")
        return ActingIdentity(request.headers["x-remote-user"], "", ("team",), {"k": ("v",)})

    monkeypatch.setattr(records_server, "read_caller", read_caller)
    clock = VirtualClock()
    service = RecordService(ArchiveReader(directory), RecordAccess(cast(Client, reviewer)), clock)
    front = FrontProxyWatch(cast(Client, reviewer), clock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with RecordsPort(service, front, context, "127.0.0.1", 0, clock) as port:
        yield port


async def ask(port: RecordsPort, line: str, *headers: str) -> tuple[int, str]:
    """The status code and the body of one answer."""
    text = "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", ""))
    head, _, body = (await speak(port, text.encode())).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def speak(port: RecordsPort, data: bytes) -> bytes:
    """What is answered on one connection, also by what reads files in threads."""
    transport = FakeTransport()
    connection = Connection(port)
    connection.connection_made(transport)
    connection.data_received(data)
    for _ in range(20):
        await settle()
        await asyncio.sleep(0.1)
    connection.connection_lost(None)
    return transport.sent


USER = "X-Remote-User: jane"


def test_before_the_first_record_a_list_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        reviewer = Reviewer(("list", "trainjobs", "ns"))
        async with serving(tmp_path / "none", reviewer, monkeypatch) as port:
            code, text = await ask(port, f"GET {BASE}/namespaces/ns/jobrecords", USER)
            assert code == 200 and json.loads(text)["items"] == []
            who = {"user": "jane", "groups": ["team"], "extra": {"k": ["v"]}}
            assert {key: reviewer.asked[0][key] for key in who} == who

    run_virtual(main())


def test_discovery_is_what_kubernetes_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path, Reviewer(), monkeypatch) as port:
            code, text = await ask(port, f"GET {BASE}", USER)
            found = {one["name"]: one["verbs"] for one in json.loads(text)["resources"]}
            assert code == 200 and found == {"jobrecords": ["get", "list"], "jobrecords/log": ["get"]}
            accept = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            answer = json.loads((await ask(port, "GET /apis", USER, accept))[1])
            assert answer["items"][0]["versions"][0]["resources"][0]["resource"] == "jobrecords"
            assert (await ask(port, "GET /apis/records.trainmaster.dev", USER))[0] == 200
            assert (await ask(port, "GET /openapi/v2", USER))[0] == 404

    run_virtual(main())


def test_without_an_api_server_that_answers_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive.open(tmp_path)
    archive.put([make_record("u1", deletion=GONE)])
    archive.close()

    async def main() -> None:
        reviewer = Reviewer()
        reviewer.away = True
        async with serving(tmp_path, reviewer, monkeypatch) as port:
            for path in ("", "/u1", "/u1/log", "/none"):
                code, text = await ask(port, f"GET {BASE}/namespaces/ns/jobrecords{path}", USER)
                assert code == 503 and "u1" not in text, path

    run_virtual(main())


@pytest.mark.parametrize(
    "line",
    [
        "GET /",
        "GET /api/v1/pods",
        f"GET {BASE}/jobs",
        f"GET {BASE}/jobrecords/u1",
        f"GET {BASE}/namespaces/ns",
        f"GET {BASE}/namespaces/ns/jobrecords/",
        f"GET {BASE}/namespaces/ns/jobrecords/u1/status",
        f"GET {BASE}/namespaces//jobrecords/u1",
        f"GET /x{BASE}/jobrecords",
    ],
)
def test_other_paths_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    async def main() -> None:
        async with serving(tmp_path, Reviewer(), monkeypatch) as port:
            assert (await ask(port, line, USER))[0] in (403, 404), line

    run_virtual(main())


def test_an_archive_that_is_damaged_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "history.db").write_bytes(b"no database" * 500)

    async def main() -> None:
        async with serving(tmp_path, Reviewer(("list", "trainjobs", "")), monkeypatch) as port:
            code, text = await ask(port, f"GET {BASE}/jobrecords", USER)
            assert code == 503 and "the archive cannot be read" in text

    run_virtual(main())
