"""The two doors of the dashboard on a real server: every route by every caller, and logins over restarts."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.clients import Raw
from tests.support.doors import DoorBrowser, make_link, read_owner_token
from tests.support.rest_routes import ROUTES
from tests.support.server import ServerProcess, start_server
from trainmaster.rest.routes.table import RULES

pytestmark = pytest.mark.wire

ENVIRON = {"TRAINMASTER_REST_REQUESTS_PER_SECOND": "0"}
READING = ("GET",)
# Ends the login under test, or makes more of them.
ABOUT_LOGINS = ("/api/v1/logout", "/api/v1/login-links")
# Besides nodes and tenants.
FOR_ADMINISTRATORS = ("/api/v1/settings", "/api/v1/doctor")
TOKEN_ANSWERS = {"/api/v1/tenants", "/api/v1/tenants/{name}/rotate", "/api/v1/tenants/{name}/enable"}


@dataclass(frozen=True)
class House:
    server: ServerProcess
    owner: str
    ann: str

    def doors(self) -> dict[str, DoorBrowser]:
        return {"plain": DoorBrowser.at_plain(self.server), "tls": DoorBrowser.at_tls(self.server)}

    def enter(self, door: str, token: str = "", *, read_only: bool = False) -> DoorBrowser:
        browser = self.doors()[door]
        browser.open(make_link(self.server, token or self.owner, read_only=read_only))
        return browser


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with start_server(tmp_path_factory.mktemp("dashboard") / "home", environ=ENVIRON) as server:
        yield House(server, read_owner_token(server), add_tenant(server, "ann"))


def add_tenant(server: ServerProcess, name: str) -> str:
    raw = DoorBrowser.at_tls(server)
    answer = raw.call(
        "POST",
        "/api/v1/tenants",
        {"name": name, "without_walls": True},
        authorization=f"Bearer {read_owner_token(server)}",
    )
    assert answer.status == 201, answer.body
    token: str = answer.json()["token"]
    return token


def fill(path: str) -> str:
    return re.sub(r"\{\w+\}", "nothing", path) + "?namespace=ann"


@pytest.mark.parametrize("door", ["plain", "tls"])
def test_whoever_shows_half_of_a_login_or_none_is_nobody_on_every_route(house: House, door: str) -> None:
    other = {"plain": "tls", "tls": "plain"}[door]
    browser, elsewhere = house.enter(door), house.enter(other)
    callers = {
        "nobody": browser.copy(key="", cookie=""),
        "the cookie alone": browser.copy(key=""),
        "the key alone": browser.copy(cookie=""),
        "halves of two logins": browser.copy(key=house.enter(door).key),
        "a login of the other door": browser.copy(key=elsewhere.key, cookie=elsewhere.cookie),
    }
    for method, path in ROUTES:
        for who, caller in callers.items():
            answer = caller.call(method, fill(path), None if method in READING else {})
            tokens = door == "plain" and method == "POST" and path in TOKEN_ANSWERS
            assert (answer.status, answer.kind) == ((400, "use-tls") if tokens else (401, "unauthorized")), (
                f"{method} {path} by {who}: {answer.body!r}"
            )


def test_tokens_open_every_route_over_tls_and_none_over_http(house: House) -> None:
    doors = house.doors()
    for method, path in ROUTES:
        body: dict[str, str] | None = None if method in READING else {}
        for token in (house.owner, house.ann):
            sent = {"authorization": f"Bearer {token}"}
            plain = doors["plain"].call(method, fill(path), body, **sent)
            assert (plain.status, plain.kind) == (400, "use-tls"), f"{method} {path}: {plain.body!r}"
            assert token.encode() not in plain.body
            tls = doors["tls"].call(method, fill(path), body, **sent)
            assert tls.status not in (401, 421) and tls.kind not in ("use-tls", "foreign-origin"), f"{method} {path}"


@pytest.mark.parametrize("door", ["plain", "tls"])
def test_logins_open_what_their_callers_may_open(house: House, door: str) -> None:
    callers = {"owner": house.enter(door), "tenant": house.enter(door, house.ann)}
    for method, path in ROUTES:
        if path in ABOUT_LOGINS:
            continue
        for who, caller in callers.items():
            answer = caller.call(method, fill(path), None if method in READING else {})
            if door == "plain" and method == "POST" and path in TOKEN_ANSWERS:
                assert answer.kind == "use-tls", f"{method} {path} by {who}"
            elif who == "tenant" and ("/tenants" in path or "/nodes" in path or path in FOR_ADMINISTRATORS):
                assert answer.status in (403, 422), f"{method} {path} by {who}: {answer.body!r}"
            else:
                assert answer.status not in (401, 403), f"{method} {path} by {who}: {answer.body!r}"


@pytest.mark.parametrize("door", ["plain", "tls"])
def test_a_read_only_login_is_refused_every_route_that_changes_something(house: House, door: str) -> None:
    browser = house.enter(door, read_only=True)
    for method, path in ROUTES:
        if path == "/api/v1/logout":
            continue
        answer = browser.call(method, fill(path), None if method in READING else {})
        if method in READING:
            assert answer.kind != "read-only" and answer.status != 401, f"{method} {path}"
        elif (method, path) in RULES.harmless:
            assert answer.kind != "read-only", f"{method} {path}: it changes nothing"
        else:
            tokens = door == "plain" and path in TOKEN_ANSWERS and method == "POST"
            assert answer.kind == ("use-tls" if tokens else "read-only"), f"{method} {path}: {answer.body!r}"
    assert browser.call("POST", "/api/v1/logout").status == 204
    assert browser.get("/api/v1/me").status == 401


@pytest.mark.parametrize("door", ["plain", "tls"])
def test_pages_of_other_sites_change_nothing(house: House, door: str) -> None:
    browser = house.enter(door)
    for method, path in ROUTES:
        if method in READING or (door == "plain" and path in TOKEN_ANSWERS):
            continue
        for foreign in (
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": None, "origin": "https://evil.example"},
            {"sec_fetch_site": None, "origin": "http://127.0.0.1:1"},
        ):
            answer = browser.call(method, fill(path), {}, **foreign)
            assert (answer.status, answer.kind) == (403, "foreign-origin"), f"{method} {path}: {answer.body!r}"
    own = {"sec_fetch_site": None, "origin": browser.url}
    assert browser.call("DELETE", "/api/v1/jobs/nothing?namespace=default", **own).status != 403


def test_names_that_resolve_to_this_machine_are_refused_over_http(house: House) -> None:
    browser = house.enter("plain")
    for path in ("/", "/ui/", "/healthz", "/docs", "/openapi.json", "/api/v1/me", "/api/v1/login", "/nothing"):
        for host in ("rebound.example", "127.0.0.1.rebound.example:80", "10.0.0.1"):
            answer = browser.get(path, host=host)
            assert (answer.status, answer.kind) == (421, "foreign-host"), (path, host)
    for host in ("localhost:8080", "127.0.0.1", "[::1]:1"):
        assert browser.get("/api/v1/me", host=host).status == 200, "as through ssh -L"


@pytest.mark.parametrize("door", ["plain", "tls"])
def test_the_page_is_served_with_its_files(house: House, door: str) -> None:
    browser = house.doors()[door]
    root = browser.get("/")
    assert (root.status, root.headers["location"]) == (307, "ui/")
    page = browser.get("/ui/")
    assert page.status == 200 and "default-src 'none'" in page.headers["content-security-policy"]
    (script,) = re.findall(rb'<script type="module" src="([^"]+)"', page.body)
    plain = browser.get(f"/ui/{script.decode()}")
    packed = browser.get(f"/ui/{script.decode()}", accept_encoding="gzip")
    assert "immutable" in packed.headers["cache-control"] and gzip.decompress(packed.body) == plain.body


def test_the_plain_door_is_told_keeps_its_port_and_its_logins_over_restarts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with start_server(home) as server:
        url = server.info["dashboard"]["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui/", url)
        browsers = [DoorBrowser.at_plain(server), DoorBrowser.at_tls(server)]
        for browser in browsers:
            browser.open(make_link(server, read_owner_token(server)))
        gone = browsers[0].copy()
        gone.open(make_link(server, read_owner_token(server)))
        copy = gone.copy()
        assert gone.call("POST", "/api/v1/logout").status == 204
        link = make_link(server, read_owner_token(server))
        server.kill()
    with start_server(home) as server:
        assert server.info["dashboard"]["url"] == url
        for browser in browsers:
            assert browser.get("/api/v1/me").status == 200
        assert copy.get("/api/v1/me").status == 401, "a logout survives a crash"
        browsers[0].copy(key="", cookie="").open(link)
        assert link not in server.log and browsers[0].key not in server.log


def test_the_plain_door_can_be_turned_off(tmp_path: Path) -> None:
    with start_server(tmp_path / "home", environ={"TRAINMASTER_DASHBOARD_PLAIN": "false"}) as server:
        assert server.info["dashboard"]["url"] == f"{server.rest_url}/ui/"
        raw = Raw(server.rest_url, DoorBrowser.at_tls(server).context or pytest.fail("TLS"), read_owner_token(server))
        assert json.dumps(raw.must("GET", "/api/v1/me"))
        raw.close()


def test_the_settings_reach_the_doors(tmp_path: Path) -> None:
    environ = {
        "TRAINMASTER_DASHBOARD_READ_ONLY": "true",
        "TRAINMASTER_DASHBOARD_FRAME_ANCESTORS": "https://portal.example.org",
        "TRAINMASTER_REST_BASE_PATH": "/kept/prefix",
    }
    with start_server(tmp_path / "home", environ=environ) as server:
        browser = DoorBrowser.at_plain(server)
        link = make_link(server, read_owner_token(server))
        answer = browser.call("POST", "/kept/prefix/api/v1/login", {"link": link, "path": "/kept/prefix/"})
        browser.key = answer.json()["key"]
        assert "Path=/kept/prefix/;" in answer.headers["set-cookie"] and answer.json()["read_only"]
        assert browser.get("/kept/prefix/api/v1/server").json()["read_only"] is True
        assert browser.get("/kept/prefix").headers["location"] == "prefix/"
        page = browser.get("/kept/prefix/ui/")
        assert "frame-ancestors https://portal.example.org;" in page.headers["content-security-policy"]
        assert browser.call("DELETE", "/kept/prefix/api/v1/jobs/x?namespace=default").kind == "read-only"


@contextmanager
def stripping_proxy(upstream: DoorBrowser, prefix: str) -> Iterator[str]:
    """As nginx with `location /p/ { proxy_pass https://upstream/; }`: it removes the prefix and sets its own Host."""

    class Handler(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            names = ("cookie", "origin", "sec-fetch-site", "x-trainmaster-login", "x-forwarded-for")
            headers = {name.replace("-", "_"): self.headers[name] for name in names if name in self.headers}
            path = self.path.removeprefix(prefix)
            answer = upstream.copy(cookie="").call(self.command, path, body, **{"sec_fetch_site": None, **headers})
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = pass_on

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_proxy_that_removes_its_prefix_needs_no_setting(house: House) -> None:
    with stripping_proxy(house.doors()["tls"], "/deep/prefix") as url:
        browser = DoorBrowser(url)
        assert browser.get("/deep/prefix/").headers["location"] == "ui/"
        page = browser.get("/deep/prefix/ui/")
        (script,) = re.findall(rb'<script type="module" src="([^"]+)"', page.body)
        assert browser.get(f"/deep/prefix/ui/{script.decode()}").status == 200
        link = make_link(house.server, house.owner)
        wish = {"link": link, "path": "/deep/prefix/"}
        answer = browser.call("POST", "/deep/prefix/api/v1/login", wish, origin="https://public.example")
        assert "Path=/deep/prefix/;" in answer.headers["set-cookie"]
        browser.key = answer.json()["key"]
        assert browser.get("/deep/prefix/api/v1/me").status == 200
        gone = browser.call("DELETE", "/deep/prefix/api/v1/jobs/x?namespace=default", origin="https://public.example")
        assert gone.status == 200, "the browser says that the page is the server's own"
