"""Writes through REST in the audit log: who it was, what became of it, and nothing that is secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest import RestApi, running_rest
from trainmaster.app.settings import Audit, Rest, Settings
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

CODE = "print('a secret of ann')\n"
ORDER = {"user_id": "ann", "namespace": "ann", "framework": "pytorch", "training_code": CODE, "config": {}}


def play(tmp_path: Path, scene: Callable[[RestApi], Awaitable[None]], settings: Settings | None = None) -> None:
    async def main() -> None:
        async with running_rest(tmp_path, settings) as rest:
            await scene(rest)

    run_virtual(main())


def read_since(rest: RestApi, begin: int) -> list[dict[str, Any]]:
    return rest.read_audit()[begin:]


def test_every_object_that_a_request_writes_has_a_line_with_its_actor(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        begin = len(rest.read_audit())
        made = await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)
        assert made.status == 200, made.body
        name = made.json()["trainjob_name"]
        lines = read_since(rest, begin)
        assert {line["user"] for line in lines} == {"system:serviceaccount:ann:tenant"}
        assert {line["requestId"] for line in lines} == {made.headers["x-request-id"]}
        assert {(line["via"], line["path"]) for line in lines} == {("rest", "/api/trainjob/create")}
        assert all("system:serviceaccounts:ann" in line["groups"] for line in lines)
        wrote = [
            (line["verb"], line["resource"], line["namespace"], line["name"]) for line in lines if line["code"] < 300
        ]
        assert ("create", "trainjobs", "ann", name) in wrote
        assert ("create", "configmaps", "ann", f"{name}-script") in wrote
        assert ("create", "configmaps", "ann", "ann-train-script") in wrote
        begin = len(rest.read_audit())
        assert (await rest.call("GET", f"/api/trainjob/{name}/status?namespace=ann", token=ann)).status == 200
        assert read_since(rest, begin) == [], "reading is not a write"
        assert (await rest.call("DELETE", f"/api/trainjob/{name}?namespace=ann", token=ann)).status == 200
        deleted = read_since(rest, begin)
        assert ("delete", "trainjobs", name, 200) in [
            (line["verb"], line["resource"], line["name"], line["code"]) for line in deleted
        ]

    play(tmp_path, scene)


def test_refused_writes_have_a_line_whether_or_not_they_came_to_an_object(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann", allowance={"jobs": 1})
        begin = len(rest.read_audit())
        cases: list[tuple[str | None, str, str, Any, int]] = [
            (None, "POST", "/api/trainjob/create", ORDER, 401),
            ("forged", "DELETE", "/api/trainjob/x?namespace=ann", None, 401),
            (ann, "POST", "/api/trainjob/create", {**ORDER, "user_id": "bob"}, 403),
            (ann, "POST", "/api/trainjob/create", {**ORDER, "namespace": "bob"}, 403),
            (ann, "POST", "/api/trainjob/create", {"nonsense": True}, 422),
            (ann, "POST", "/api/v1/tenants/ann/rotate", {}, 403),
            (ann, "DELETE", "/api/v1/nowhere", None, 404),
        ]
        for token, method, path, body, code in cases:
            before = len(rest.read_audit())
            answer = await rest.call(method, path, token=token, body=body)
            assert answer.status == code, answer.body
            lines = read_since(rest, before)
            assert lines, f"{method} {path} left no line"
            assert all(line["code"] >= 400 for line in lines), lines
            assert {line["requestId"] for line in lines} == {answer.headers["x-request-id"]}
            user = "system:anonymous" if code == 401 else "system:serviceaccount:ann:tenant"
            assert {line["user"] for line in lines} == {user}
        # The quota is met by the server behind: the line names the object.
        assert (await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)).status == 200
        await rest.api.registry.settled()
        before = len(rest.read_audit())
        assert (await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)).status == 403
        refused = [line for line in read_since(rest, before) if line["code"] == 403]
        assert [(line["verb"], line["resource"]) for line in refused] == [("create", "trainjobs")]
        assert len(rest.read_audit()) > begin

    play(tmp_path, scene)


def test_neither_code_nor_tokens_nor_queries_are_in_the_audit_log(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)
        await rest.call("DELETE", f"/api/trainjob/x?namespace=ann&token={ann}", token=ann)
        await rest.call("POST", f"/api/{'x' * 5000}", token=ann)
        rest.read_audit()
        text = rest.api.world.home.audit_log.read_text()
        assert "a secret of ann" not in text
        assert ann not in text
        assert rest.owner not in text
        assert max(len(line) for line in text.splitlines()) < 1500

    play(tmp_path, scene)


def test_a_sign_up_is_written_down_as_nobodys(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        answer = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann"})
        assert answer.status == 201, answer.body
        lines = rest.read_audit()
        assert {(line["user"], line["via"], line["path"]) for line in lines} == {
            ("system:anonymous", "rest", "/api/v1/signup")
        }
        assert ("create", "namespaces", "ann", 201) in [
            (line["verb"], line["resource"], line["name"], line["code"]) for line in lines
        ]
        assert answer.json()["token"] not in rest.api.world.home.audit_log.read_text()

    play(tmp_path, scene, replace(Settings(), rest=Rest(sign_up="open")))


def test_without_an_audit_log_requests_work_the_same(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        assert (await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)).status == 200
        assert not rest.api.world.home.audit_log.exists()

    play(tmp_path, scene, replace(Settings(), audit=Audit(enabled=False)))
