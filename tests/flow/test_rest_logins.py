"""Logins of the dashboard on the real application and API server: both halves, both doors, links, ends, read-only."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest import RestApi, running_rest
from tests.support.rest_logins import PLAIN, TLS, Browser
from tests.support.rest_plant import running_rest_plant
from tests.unit.rest.asgi import Answer
from trainmaster.api.resources import SECRETS
from trainmaster.api.tenancy import SYSTEM_NAMESPACE
from trainmaster.app.settings import Dashboard, Rest, Settings
from trainmaster.rest.logins.logins import Logins
from trainmaster.rest.logins.storage import SECRET, SecretStorage
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

HOUR = 3600.0
DAY = 24 * HOUR
JOB = {"framework": "pytorch", "code": "print(1)\n", "namespace": "ann"}


def play(tmp_path: Path, scene: Callable[[RestApi], Awaitable[None]], settings: Settings | None = None) -> None:
    async def main() -> None:
        async with running_rest(tmp_path, settings) as rest:
            await scene(rest)

    run_virtual(main(), limit=60 * DAY)


def check(answer: Answer, status: int, kind: str) -> dict[str, Any]:
    data: dict[str, Any] = answer.json()
    assert (answer.status, data["type"].rpartition(":")[2]) == (status, kind), answer.body
    return data


async def enter(rest: RestApi, scheme: str = TLS, token: str = "", **wish: Any) -> Browser:
    browser = Browser(rest, scheme)
    await browser.open(await browser.make_link(token or rest.owner), **wish)
    return browser


@pytest.mark.parametrize("scheme", [PLAIN, TLS])
def test_a_link_opens_the_dashboard_once(tmp_path: Path, scheme: str) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        link = await Browser(rest).make_link(ann)
        browser = Browser(rest, scheme)
        answer = await browser.log_in(link=link)
        assert answer.json()["user"] == "system:serviceaccount:ann:tenant" and not answer.json()["read_only"]
        me = (await browser.get()).json()
        assert (me["tenant"], me["read_only"]) == ("ann", False)
        assert (await browser.call("POST", "/api/v1/jobs", JOB)).status == 201
        used = check(await Browser(rest, scheme).log_in(link=link), 401, "unauthorized")
        assert "used already" in used["detail"] and "trainmaster dashboard" in used["hint"]

    play(tmp_path, scene)


def test_the_cookie_is_closed_to_programs_and_other_sites(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        parts = {}
        for scheme in (PLAIN, TLS):
            browser = Browser(rest, scheme)
            answer = await browser.log_in(link=await browser.make_link(rest.owner), path="/prefix/")
            cookie = answer.headers["set-cookie"]
            parts[scheme] = set(cookie.split("; ")[1:])
            assert rest.owner not in cookie and answer.json()["key"] not in cookie
            assert rest.owner not in answer.body.decode()
        assert parts[TLS] == parts[PLAIN] | {"Secure"}
        assert parts[PLAIN] == {"Path=/prefix/", "Max-Age=604800", "HttpOnly", "SameSite=Strict"}

    play(tmp_path, scene)


@pytest.mark.parametrize("scheme", [PLAIN, TLS])
def test_one_half_alone_is_nobody(tmp_path: Path, scheme: str) -> None:
    async def scene(rest: RestApi) -> None:
        browser, other = await enter(rest, scheme), await enter(rest, scheme)
        assert browser.key != other.key and browser.cookie != other.cookie
        for changed in (
            {"cookie": None},
            {"x_trainmaster_login": None},
            {"x_trainmaster_login": other.key},
            {"cookie": other.cookie},
            {"x_trainmaster_login": browser.key[:-1]},
            {"cookie": browser.cookie[:-2]},
        ):
            check(await browser.get(**changed), 401, "unauthorized")
        assert (await browser.get()).status == 200

    play(tmp_path, scene)


def test_a_login_of_one_door_does_not_open_the_other(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        for scheme, other in ((PLAIN, TLS), (TLS, PLAIN)):
            browser = await enter(rest, scheme)
            browser.scheme = other
            check(await browser.get(), 401, "unauthorized")
            name, _, value = browser.cookie.partition("=")
            name = name.removesuffix("-plain") if scheme == PLAIN else f"{name}-plain"
            check(await browser.get(cookie=f"{name}={value}"), 401, "unauthorized")

    play(tmp_path, scene)


def test_a_cookie_that_a_neighbour_sets_neither_gets_in_nor_keeps_anybody_out(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser, mallory = await enter(rest), await enter(rest, token=await rest.add_tenant("mallory"))
        # Fixation: the page's key does not fit the planted cookie.
        check(await browser.get(cookie=mallory.cookie), 401, "unauthorized")
        # A planted one beside the right one, as browsers send those of longer paths first.
        answer = await browser.get(cookie=f"{mallory.cookie}; {browser.cookie}")
        assert answer.json()["user"] == "trainmaster:owner"

    play(tmp_path, scene)


def test_the_token_form_works_over_tls_alone(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        browser = Browser(rest)
        assert (await browser.log_in(token=ann)).status == 200
        assert (await browser.get()).json()["tenant"] == "ann"
        check(await Browser(rest, PLAIN).log_in(token=ann), 400, "use-tls")
        refused = check(await Browser(rest).log_in(token="made up"), 401, "unauthorized")
        assert "made up" not in json.dumps(refused)

    play(tmp_path, scene)


def test_no_token_crosses_the_plain_door(tmp_path: Path) -> None:
    settings = replace(Settings(), rest=Rest(sign_up="open"))

    async def scene(rest: RestApi) -> None:
        answer = await rest.call("GET", "/api/v1/me", token=rest.owner, scheme=PLAIN, headers=[("host", "localhost")])
        check(answer, 400, "use-tls")
        browser = await enter(rest, PLAIN)
        check(await browser.call("POST", "/api/v1/signup", {"name": "eve"}), 400, "use-tls")
        body = {"name": "eve", "without_walls": True}
        check(await browser.call("POST", "/api/v1/tenants", body), 400, "use-tls")
        openly = {"without_walls": True}
        for method, path, sent in (("PUT", "fay", openly), ("POST", "fay/login-link", {}), ("PATCH", "fay", {})):
            answer = await browser.call(method, f"/api/v1/tenants/{path}", sent)
            assert answer.status in (200, 201) and 'token"' not in answer.body.decode(), answer.body
        await rest.add_tenant("bob")
        for verb in ("rotate", "enable"):
            check(await browser.call("POST", f"/api/v1/tenants/bob/{verb}", {}), 400, "use-tls")
        over_tls = await enter(rest)
        assert (await over_tls.call("POST", "/api/v1/tenants", body)).status == 201

    play(tmp_path, scene, settings)


@pytest.mark.parametrize("path", ["/ui/", "/healthz", "/openapi.json", "/api/v1/me", "/nothing"])
def test_a_foreign_name_of_the_host_is_refused_at_the_plain_door(tmp_path: Path, path: str) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest, PLAIN)
        check(await browser.get(path, host="evil.example:80"), 421, "foreign-host")
        check(await browser.get(path, host=None), 421, "foreign-host")
        over_tls = Browser(rest, TLS, key=browser.key, cookie=browser.cookie)
        assert (await over_tls.get(path, host="train.example.org")).status != 421

    play(tmp_path, scene)


@pytest.mark.parametrize("scheme", [PLAIN, TLS])
@pytest.mark.parametrize(
    "foreign",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": None, "origin": "http://evil.example"},
        {"sec_fetch_site": None, "origin": "null"},
    ],
)
def test_writes_from_pages_of_other_sites_are_refused(tmp_path: Path, scheme: str, foreign: dict[str, str]) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest, scheme)
        check(
            await browser.call("POST", "/api/v1/jobs", {**JOB, "namespace": "default"}, **foreign),
            403,
            "foreign-origin",
        )
        check(await browser.call("DELETE", "/api/v1/jobs/x", **foreign), 403, "foreign-origin")
        link = await browser.make_link(rest.owner)
        check(
            await Browser(rest, scheme).call("POST", "/api/v1/login", {"link": link}, **foreign), 403, "foreign-origin"
        )
        assert (await Browser(rest, scheme).log_in(link=link)).status == 200, "the link was not used up"
        assert (await browser.get(**foreign)).status == 200, "reading brings no answer to another site anyway"

    play(tmp_path, scene)


def test_links_expire_after_two_minutes(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        link, late = [await Browser(rest).make_link(rest.owner) for _ in range(2)]
        await rest.clock.sleep(119)
        assert (await Browser(rest).log_in(link=link)).status == 200
        await rest.clock.sleep(2)
        check(await Browser(rest).log_in(link=late), 401, "unauthorized")

    play(tmp_path, scene)


def test_a_link_acts_as_whoever_asked_for_it_and_only_while_their_token_is_valid(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann")
        first, second = [await Browser(rest).make_link(ann) for _ in range(2)]
        browser = Browser(rest)
        await browser.open(first)
        assert (await browser.get()).json()["user"] == "system:serviceaccount:ann:tenant"
        assert (await rest.call("POST", "/api/v1/tenants/ann/rotate", token=rest.owner, body={})).status == 200
        check(await Browser(rest).log_in(link=second), 401, "unauthorized")
        refused = check(await browser.get(), 401, "unauthorized")
        assert "token" in refused["detail"] and "trainmaster dashboard" in refused["hint"]

    play(tmp_path, scene)


def test_a_page_makes_links_that_live_no_longer_than_its_login(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = Browser(rest)
        answer = await browser.log_in(link=await browser.make_link(rest.owner))
        for _ in range(11):
            await rest.clock.sleep(11 * HOUR)
            assert (await browser.get()).status == 200
        made = await browser.call("POST", "/api/v1/login-links")
        child = await Browser(rest).log_in(link=made.json()["link"])
        assert child.json()["expires_at"] == answer.json()["expires_at"]

    play(tmp_path, scene)


def test_a_login_ends_after_twelve_hours_without_use_and_after_a_week_in_any_case(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        idle, busy = await enter(rest), await enter(rest)
        for _ in range(15):
            await rest.clock.sleep(11 * HOUR)
            assert (await busy.get()).status == 200
        assert "not used" in check(await idle.get(), 401, "unauthorized")["detail"]
        await rest.clock.sleep(3 * HOUR + 1)
        assert "a week old" in check(await busy.get(), 401, "unauthorized")["detail"]

    play(tmp_path, scene)


def test_an_old_cookie_is_no_way_around_that(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest)
        first = browser.cookie
        await rest.clock.sleep(11 * HOUR)
        assert (await browser.get()).status == 200 and browser.cookie != first
        # After a restart, only the cookie tells when the login was used.
        again = await restart(rest)
        await rest.clock.sleep(2 * HOUR)
        stale = Browser(again, key=browser.key, cookie=first)
        check(await stale.get(), 401, "unauthorized")
        browser.rest = again
        assert (await browser.get()).status == 200

    play(tmp_path, scene)


def test_a_login_ends_with_its_token(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = await rest.add_tenant("ann", token_days=1)
        browser = Browser(rest)
        answer = await browser.log_in(token=ann)
        claims = json.loads(base64.urlsafe_b64decode(ann.split(".")[1] + "=="))
        seconds = claims["exp"] - rest.clock.unix()
        assert answer.headers["set-cookie"].count(f"Max-Age={int(seconds)};") == 1
        await rest.clock.sleep(11 * HOUR)
        assert (await browser.get()).status == 200
        await rest.clock.sleep(11 * HOUR)
        assert (await browser.get()).status == 200
        await rest.clock.sleep(2 * HOUR)
        check(await browser.get(), 401, "unauthorized")

    play(tmp_path, scene)


def test_the_cookie_is_renewed_now_and_then_and_keeps_its_path(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest, PLAIN, path="/p/")
        assert "set-cookie" not in (await browser.get()).headers
        await rest.clock.sleep(601)
        answer = await browser.get()
        assert "Path=/p/; Max-Age=604199; HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        assert "set-cookie" not in (await browser.get()).headers

    play(tmp_path, scene)


def test_logging_out_ends_the_login_for_copies_of_it_too(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser, other = await enter(rest), await enter(rest)
        copy = replace(browser)
        answer = await browser.call("POST", "/api/v1/logout")
        assert answer.status == 204 and "Max-Age=0" in answer.headers["set-cookie"]
        assert "was ended" in check(await copy.get(), 401, "unauthorized")["detail"]
        copy.rest = await restart(rest)
        check(await copy.get(), 401, "unauthorized")
        assert (await other.get()).status == 200
        check(await rest.call("POST", "/api/v1/logout", token=rest.owner), 400, "no-login")

    play(tmp_path, scene)


async def restart(rest: RestApi) -> RestApi:
    """Another process of the same installation, after a restart or beside the first."""
    from trainmaster.rest.application import build_app

    logins = Logins(rest.backend.callers, SecretStorage(rest.client, SYSTEM_NAMESPACE), rest.clock, rest.backend.ids)
    backend = replace(rest.backend, logins=logins)
    return replace(rest, app=build_app(backend), backend=backend)


def test_logins_and_links_are_known_to_replicas_and_after_restarts(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        other = await restart(rest)
        browser, second = await enter(rest), Browser(other)
        browser.rest = other
        assert (await browser.get()).status == 200
        link = await Browser(rest).make_link(rest.owner)
        await second.open(link)
        check(await Browser(rest).log_in(link=link), 401, "unauthorized")
        # A logout reaches the other replica within seconds.
        browser.rest = rest
        copy = replace(browser, rest=other)
        assert (await copy.get()).status == 200
        assert (await browser.call("POST", "/api/v1/logout")).status == 204
        await rest.clock.sleep(2)
        check(await copy.get(), 401, "unauthorized")

    play(tmp_path, scene)


def test_a_renewed_sealing_key_ends_no_login(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        await enter(rest)
        await rest.clock.sleep(29 * DAY)
        old = await enter(rest)
        for _ in range(5):
            await rest.clock.sleep(10 * HOUR)
            assert (await old.get()).status == 200
        new = await enter(rest)
        assert (await old.get()).status == 200
        assert new.cookie.split("=")[1].split(".")[0] != old.cookie.split("=")[1].split(".")[0]
        assert (await new.get()).status == 200

    play(tmp_path, scene)


def test_without_the_secret_all_logins_end(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest)
        await rest.client.delete(SECRETS, SECRET, SYSTEM_NAMESPACE)
        await rest.clock.sleep(2)
        check(await browser.get(), 401, "unauthorized")
        assert (await (await enter(rest)).get()).status == 200

    play(tmp_path, scene)


def test_the_secret_contains_no_token_and_no_key(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest)
        link = await browser.make_link(rest.owner)
        assert (await (await enter(rest)).call("POST", "/api/v1/logout")).status == 204
        secret = await rest.client.get(SECRETS, SECRET, SYSTEM_NAMESPACE)
        state = base64.b64decode(secret["data"]["state"]).decode()
        for text in (rest.owner, browser.key, browser.cookie, link):
            assert text not in state

    play(tmp_path, scene)


@pytest.mark.parametrize("how", ["the login", "the link", "the setting"])
def test_a_read_only_login_changes_nothing(tmp_path: Path, how: str) -> None:
    settings = replace(Settings(), dashboard=Dashboard(read_only=how == "the setting"))

    async def scene(rest: RestApi) -> None:
        browser = Browser(rest)
        link = await browser.make_link(rest.owner, read_only=how == "the link")
        answer = await browser.log_in(link=link, read_only=how == "the login")
        assert answer.json()["read_only"] and (await browser.get()).json()["read_only"]
        for method, path, body in (
            ("POST", "/api/v1/jobs", {**JOB, "namespace": "default"}),
            ("DELETE", "/api/v1/jobs/x", None),
            ("POST", "/api/v1/jobs/x/suspend", None),
            ("PATCH", "/api/v1/tenants/x", {}),
            ("POST", "/api/v1/login-links", {}),
            ("PUT", "/nothing", None),
        ):
            check(await browser.call(method, path, body), 403, "read-only")
        assert (await browser.get("/api/v1/jobs")).status == 200
        assert (await rest.call("DELETE", "/api/v1/tenants/x", token=rest.owner)).status == 404, "a token is no login"
        assert (await browser.call("POST", "/api/v1/logout")).status == 204

    play(tmp_path, scene, settings)


def test_more_than_five_failures_a_minute_from_one_address_are_refused(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        link = await Browser(rest).make_link(rest.owner)
        for number in range(5):
            wish = {"token": "x"} if number % 2 else {"link": "x"}
            check(await Browser(rest).log_in(**wish), 401, "unauthorized")
        for wish in ({"token": "x"}, {"link": "x"}, {"token": rest.owner}):
            refused = await Browser(rest).log_in(**wish)
            check(refused, 429, "too-many-logins")
            assert 55 <= int(refused.headers["retry-after"]) <= 60
        assert (await Browser(rest, address="10.0.0.9").log_in(token=rest.owner)).status == 200
        # Others at the same address must not keep out who has a link.
        assert (await Browser(rest).log_in(link=link)).status == 200
        await rest.clock.sleep(61)
        for _ in range(9):
            assert (await Browser(rest).log_in(token=rest.owner)).status == 200, "successes are not counted"

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "wish",
    [{}, {"token": "a", "link": "b"}, {"link": "x", "path": "/a"}, {"link": "x", "path": "/;Secure/"}, {"tokens": "x"}],
)
def test_a_login_that_makes_no_sense_is_explained(tmp_path: Path, wish: dict[str, str]) -> None:
    async def scene(rest: RestApi) -> None:
        check(await Browser(rest).log_in(**wish), 422, "invalid")

    play(tmp_path, scene)


def test_a_token_too_long_for_a_cookie_is_told(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        check(await Browser(rest).log_in(token="x" * 5_000), 401, "unauthorized")
        check(await Browser(rest).log_in(link="y" * 256), 401, "unauthorized")

    play(tmp_path, scene)


def test_all_logins_end_when_asked(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        browser = await enter(rest)
        await rest.clock.sleep(1)
        await rest.backend.logins.end_all()
        check(await browser.get(), 401, "unauthorized")
        await rest.clock.sleep(1)
        assert (await (await enter(rest)).get()).status == 200

    play(tmp_path, scene)


@pytest.mark.parametrize("url", ["/api/v1/jobs/{name}/events/stream", "/api/v1/stream?topic=jobs&topic=log:ann/{name}"])
@pytest.mark.parametrize("end", ["token", "logout"])
def test_a_stream_ends_with_its_token_and_its_login(tmp_path: Path, end: str, url: str) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            rest = plant.rest
            ann = await rest.add_tenant("ann")
            name = (await rest.call("POST", "/api/v1/jobs", token=ann, body=JOB)).json()["name"]
            browser = await enter(rest, PLAIN, token=ann)
            headers = [("host", "localhost"), ("x-trainmaster-login", browser.key), ("cookie", browser.cookie)]
            async with plant.listen(url.format(name=name), token=None, headers=headers, scheme=PLAIN) as stream:
                assert await stream.started() == 200
                first = await stream.next()
                assert first is not None and first.kind != "problem"
                begin = rest.clock.monotonic()
                if end == "token":
                    answer = await rest.call("POST", "/api/v1/tenants/ann/rotate", token=rest.owner, body={})
                    assert answer.status == 200
                else:
                    assert (await browser.call("POST", "/api/v1/logout")).status == 204
                while (event := await stream.next()) is not None and event.kind != "problem":
                    pass
                assert event is not None and event.data["status"] == 401
                assert rest.clock.monotonic() - begin <= 5.1

    run_virtual(main())


def test_a_login_is_used_as_long_as_its_stream_is_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            rest = plant.rest
            ann = await rest.add_tenant("ann")
            name = (await rest.call("POST", "/api/v1/jobs", token=ann, body=JOB)).json()["name"]
            browser = await enter(rest, token=ann)
            headers = [("x-trainmaster-login", browser.key), ("cookie", browser.cookie)]
            async with plant.listen(f"/api/v1/jobs/{name}/events/stream", token=None, headers=headers) as stream:
                assert await stream.started() == 200
                await rest.clock.sleep(13 * HOUR)
                assert (await browser.get()).status == 200

    run_virtual(main())
