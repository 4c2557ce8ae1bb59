"""Tenants through REST, with real tokens and roles: what each caller may do with whose things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest import RestApi, running_rest
from tests.support.rest_logins import PLAIN, TLS, Browser
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import Allowance
from trainmaster.app.settings import Rest, Settings
from trainmaster.tenancy.invitations import Invitations
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.flow

ORDER = {"framework": "pytorch", "training_code": "print(1)\n", "config": {"num_nodes": 2}}


def play(tmp_path: Path, scene: Callable[[RestApi], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with running_rest(tmp_path, replace(Settings(), rest=Rest(**settings))) as rest:
            await scene(rest)

    run_virtual(main())


async def create(rest: RestApi, token: str, user: str, namespace: str) -> Any:
    body = {**ORDER, "user_id": user, "namespace": namespace}
    return await rest.call("POST", "/api/trainjob/create", token=token, body=body)


def test_a_tenant_trains_in_its_own_namespace_and_knows_what_it_has(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann", allowance={"jobs": 2, "cpu": 4})
        me = (await rest.call("GET", "/api/v1/me", token=ann)).json()
        assert (me["tenant"], me["namespace"], me["administrator"]) == ("ann", "ann", False)
        made = await create(rest, ann, "ann", "ann")
        assert made.status == 200, made.body
        await rest.api.registry.settled()
        quota = {use["resource"]: use for use in (await rest.call("GET", "/api/v1/me", token=ann)).json()["quota"]}
        assert quota["count/trainjobs.trainer.kubeflow.org"] == {
            "resource": "count/trainjobs.trainer.kubeflow.org",
            "allowed": "2",
            "used": "1",
        }
        assert (await create(rest, ann, "ann", "ann")).status == 200
        refused = await create(rest, ann, "ann", "ann")
        assert refused.status == 403
        assert "exceeded quota" in refused.json()["detail"]

    play(tmp_path, scene)


OTHERS = [
    ("GET", "/api/trainjob/{job}/status?namespace=bob", None),
    ("GET", "/api/trainjob/{job}/logs?namespace=bob", None),
    ("POST", "/api/trainjob/create", {**ORDER, "user_id": "ann", "namespace": "bob"}),
    ("POST", "/api/trainjob/create", {**ORDER, "user_id": "bob", "namespace": "bob"}),
    ("POST", "/api/trainjob/create", {**ORDER, "user_id": "bob", "namespace": "ann"}),
    ("DELETE", "/api/trainjob/{job}?namespace=bob", None),
    ("POST", "/api/v1/tenants", {"name": "eve", "without_walls": True}),
    ("GET", "/api/v1/tenants", None),
    ("GET", "/api/v1/tenants/bob", None),
    ("PUT", "/api/v1/tenants/fay", {"without_walls": True}),
    ("POST", "/api/v1/tenants/bob/login-link", {}),
    ("PATCH", "/api/v1/tenants/bob", {"state": "Active"}),
    ("POST", "/api/v1/tenants/bob/rotate", {}),
    ("POST", "/api/v1/tenants/bob/enable", {}),
    ("POST", "/api/v1/tenants/bob/disable", None),
    ("DELETE", "/api/v1/tenants/bob", None),
]


def test_what_is_anothers_or_the_administrators_is_refused(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann, bob = await rest.add_tenant("ann"), await rest.add_tenant("bob")
        job = (await create(rest, bob, "bob", "bob")).json()["trainjob_name"]
        before = rest.api.store.revision
        tokens = {"another tenant": (ann, 403), "nobody": (None, 401), "empty": ("", 401), "forged": (bob + "x", 401)}
        for method, path, body in OTHERS:
            for who, (token, code) in tokens.items():
                answer = await rest.call(method, path.replace("{job}", job), token=token, body=body)
                assert answer.status == code, f"{method} {path} by {who}: {answer.body!r}"
        assert rest.api.store.revision == before, "a refused request wrote something"
        for method, path, body in OTHERS:
            answer = await rest.call(method, path.replace("{job}", job), token=rest.owner, body=body)
            assert answer.status not in (401, 403), f"{method} {path} by the owner: {answer.body!r}"

    play(tmp_path, scene)


def test_a_revoked_or_expired_token_works_nowhere(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann, bob = await rest.add_tenant("ann"), await rest.add_tenant("bob", token_days=1)
        assert (await rest.call("POST", "/api/v1/tenants/ann/rotate", token=rest.owner, body={})).status == 200
        assert (await rest.call("GET", "/api/v1/me", token=ann)).status == 401
        with pytest.raises(StatusError):
            rest.as_token(ann)
        assert (await rest.call("GET", "/api/v1/me", token=bob)).status == 200
        assert isinstance(rest.clock, VirtualClock)
        await rest.clock.sleep(timedelta(days=1, seconds=1).total_seconds())
        assert (await rest.call("GET", "/api/v1/me", token=bob)).status == 401

    play(tmp_path, scene)


def test_the_same_token_has_the_same_rights_on_the_kubernetes_side(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        await rest.add_tenant("bob")
        kube = rest.as_token(ann)
        assert (await kube.list(TRAIN_JOBS, "ann")).items == []
        for refused in (
            kube.list(TRAIN_JOBS, "bob"),
            kube.list(TRAIN_JOBS),
            kube.list(CONFIG_MAPS, "kubeflow-system"),
        ):
            with pytest.raises(StatusError) as error:
                await refused
            assert error.value.code == 403

    play(tmp_path, scene)


def test_sign_up_is_closed_until_an_administrator_opens_it(tmp_path: Path) -> None:
    async def closed(rest: RestApi) -> None:
        answer = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann"})
        assert answer.status == 403
        assert "administrators" in answer.json()["detail"]

    play(tmp_path / "closed", closed)

    async def opened(rest: RestApi) -> None:
        answer = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann"})
        assert answer.status == 201, answer.body
        token = answer.json()["token"]
        assert (await create(rest, token, "ann", "ann")).status == 200
        again = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann"})
        assert (again.status, again.json()["detail"]) == (409, "the name ann is taken")
        assert "trainmaster tenant" not in again.json()["hint"]
        wrong = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "kube-system"})
        assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "/name")
        statuses = set()
        for number in range(25):
            body = {"name": f"t{number}"}
            statuses.add((await rest.call("POST", "/api/v1/signup", token=None, body=body)).status)
        assert statuses == {201, 429}

    play(tmp_path / "open", opened, sign_up="open")


@pytest.mark.parametrize("happened", ["rotate", "disable"])
def test_nobody_signs_up_as_a_tenant_that_was_there_before(tmp_path: Path, happened: str) -> None:
    """Its first token is gone, so nothing but the name says that it is somebody's."""

    async def scene(rest: RestApi) -> None:
        body = {"name": "ann"}
        assert (await rest.call("POST", "/api/v1/signup", token=None, body=body)).status == 201
        sent: dict[str, str] | None = {} if happened == "rotate" else None
        done = await rest.call("POST", f"/api/v1/tenants/ann/{happened}", token=rest.owner, body=sent)
        assert done.status == 200, done.body
        stranger = await rest.call("POST", "/api/v1/signup", token=None, body=body)
        assert (stranger.status, stranger.json()["detail"]) == (409, "the name ann is taken")
        if happened == "disable":
            again = await rest.call("POST", "/api/v1/tenants", token=rest.owner, body={"name": "ann"})
            assert (again.status, "tenant enable ann" in again.json()["detail"]) == (409, True)

    play(tmp_path, scene, sign_up="open")


def test_only_who_was_invited_signs_up_where_invitations_are_asked_for(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        refused = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann"})
        assert (refused.status, refused.json()["type"].rpartition(":")[2]) == (403, "invitation-needed")
        await Invitations(rest.client, rest.clock).invite("a code", Allowance(jobs=3), uses=1)
        wrong = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann", "invitation": "another"})
        assert wrong.status == 409
        body = {"name": "kube-bad", "invitation": "a code"}
        assert (await rest.call("POST", "/api/v1/signup", token=None, body=body)).status == 422
        answer = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "ann", "invitation": "a code"})
        assert answer.status == 201, answer.body
        me = await rest.call("GET", "/api/v1/me", token=answer.json()["token"])
        allowed = {entry["resource"]: entry["allowed"] for entry in me.json()["quota"]}
        assert allowed["count/trainjobs.trainer.kubeflow.org"] == "3"
        again = await rest.call("POST", "/api/v1/signup", token=None, body={"name": "bob", "invitation": "a code"})
        assert (again.status, "used up" in again.json()["detail"]) == (409, True)

    play(tmp_path, scene, sign_up="invited")


def test_an_administrator_changes_what_a_tenant_may_have(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        token = await rest.add_tenant("ann")
        body = {"jobs": 1, "memory": "2Gi"}
        changed = await rest.call("PATCH", "/api/v1/tenants/ann", token=rest.owner, body=body)
        assert changed.status == 200, changed.body
        budgets = {entry["name"]: entry["allowed"] for entry in changed.json()["budgets"]}
        assert (budgets["jobs"], budgets["memory"]) == ("1", "2Gi")
        assert (await rest.call("PATCH", "/api/v1/tenants/ann", token=token, body=body)).status == 403
        wrong = await rest.call("PATCH", "/api/v1/tenants/ann", token=rest.owner, body={"memory": "-1"})
        assert wrong.status == 422
        lifted = await rest.call("PATCH", "/api/v1/tenants/ann", token=rest.owner, body={"memory": None})
        assert "memory" not in {entry["name"] for entry in lifted.json()["budgets"]}

    play(tmp_path, scene)


async def ask(rest: RestApi, method: str, path: str, body: Any = None) -> Any:
    answer = await rest.call(method, f"/api/v1/tenants/{path}", token=rest.owner, body=body)
    assert answer.status in (200, 201), answer.body
    return answer.json()


@pytest.mark.parametrize("scheme", [PLAIN, TLS])
def test_an_administrator_lets_a_tenant_in_without_telling_a_token(tmp_path: Path, scheme: str) -> None:
    async def scene(rest: RestApi) -> None:
        administrator = Browser(rest, scheme)
        await administrator.open(await administrator.make_link(rest.owner))
        body = {"allowance": {"jobs": 3}, "without_walls": True}
        for _ in range(2):
            made = await administrator.call("PUT", "/api/v1/tenants/ann", body)
            assert (made.status, made.json()["tokens_expire_at"]) == (200, []), made.body
        link = (await administrator.call("POST", "/api/v1/tenants/ann/login-link")).json()["link"]
        ann = Browser(rest, scheme)
        await ann.open(link)
        me = (await ann.get()).json()
        assert (me["tenant"], me["read_only"]) == ("ann", False)
        assert {use["resource"]: use["allowed"] for use in me["quota"]}["count/trainjobs.trainer.kubeflow.org"] == "3"
        again = await administrator.call("PUT", "/api/v1/tenants/ann", body)
        assert (again.status, "rotate ann" in again.json()["detail"]) == (409, True)
        looking = (await administrator.call("POST", "/api/v1/tenants/ann/login-link", {"read_only": True})).json()
        watcher = Browser(rest, scheme)
        await watcher.open(looking["link"])
        assert (await watcher.get()).json()["read_only"]

    play(tmp_path, scene)


def test_a_login_link_leaves_tokens_valid_and_ends_with_them(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        token = await rest.add_tenant("ann")
        browser = Browser(rest)
        await browser.open((await ask(rest, "POST", "ann/login-link"))["link"])
        assert (await rest.call("GET", "/api/v1/me", token=token)).status == 200
        assert len((await ask(rest, "GET", "ann"))["tokens_expire_at"]) == 2
        await ask(rest, "POST", "ann/rotate", {})
        assert (await browser.get()).status == 401
        assert (await rest.call("GET", "/api/v1/me", token=token)).status == 401

    play(tmp_path, scene)


def test_tokens_behind_old_login_links_are_forgotten(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        await rest.add_tenant("ann")
        for _ in range(3):
            await ask(rest, "POST", "ann/login-link")
        assert len((await ask(rest, "GET", "ann"))["tokens_expire_at"]) == 4
        await rest.clock.sleep(timedelta(days=8).total_seconds())
        await ask(rest, "POST", "ann/login-link")
        assert len((await ask(rest, "GET", "ann"))["tokens_expire_at"]) == 2

    play(tmp_path, scene)


def test_a_disabled_tenant_gets_its_rights_back_without_a_token(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        token = await rest.add_tenant("ann")
        assert (await ask(rest, "PATCH", "ann", {"state": "Disabled"}))["state"] == "Disabled"
        assert (await rest.call("GET", "/api/v1/me", token=token)).status == 401
        refused = await rest.call("POST", "/api/v1/tenants/ann/login-link", token=rest.owner)
        assert (refused.status, "is disabled" in refused.json()["detail"]) == (409, True)
        back = await ask(rest, "PATCH", "ann", {"state": "Active", "jobs": 5})
        assert (back["state"], back["tokens_expire_at"]) == ("Active", [])
        assert {one["name"]: one["allowed"] for one in back["budgets"]}["jobs"] == "5"
        browser = Browser(rest)
        await browser.open((await ask(rest, "POST", "ann/login-link"))["link"])
        assert (await browser.get("/api/v1/jobs")).status == 200
        for wrong in ({"state": "Gone"}, {"state": 1}, {"states": "Active"}):
            answer = await rest.call("PATCH", "/api/v1/tenants/ann", token=rest.owner, body=wrong)
            assert answer.status == 422, answer.body

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "name", ["kube-system", "UPPER", "a" * 41, "default", "a" * 64, "%2e%2e", "a%00b", "%F0%9F%92%A3"]
)
def test_no_tenant_gets_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    async def scene(rest: RestApi) -> None:
        before = rest.api.store.revision
        made = await rest.call("PUT", f"/api/v1/tenants/{name}", token=rest.owner, body={"without_walls": True})
        assert made.status in (404, 422), made.body
        link = await rest.call("POST", f"/api/v1/tenants/{name}/login-link", token=rest.owner, body={})
        assert link.status in (404, 422), link.body
        assert rest.api.store.revision == before

    play(tmp_path, scene)


def test_a_tenant_who_sends_too_much_waits_and_an_administrator_does_not(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        answers = [await rest.call("GET", "/api/v1/me", token=ann) for _ in range(8)]
        assert [answer.status for answer in answers] == [200] * 5 + [429] * 3
        assert answers[-1].headers["retry-after"] == "1"
        assert [(await rest.call("GET", "/api/v1/me", token=rest.owner)).status for _ in range(8)] == [200] * 8
        await rest.clock.sleep(1.0)
        assert (await rest.call("GET", "/api/v1/me", token=ann)).status == 200

    play(tmp_path, scene, requests_per_second=2.0, request_burst=5)
