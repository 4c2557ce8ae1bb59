"""Ways into the dashboard and out of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Response, expect

from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_a_link_logs_in_once_and_leaves_the_address_at_once(people: People, desk: Desk) -> None:
    link = desk.make_link("owner")
    page = people.open_stranger()
    page.goto(link)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert "link=" not in page.url
    assert page.evaluate("history.length") <= 2, "`back` must not lead to the link"
    second = people.open_stranger()
    second.goto(link)
    expect(second.get_by_role("alert")).to_contain_text("trainmaster dashboard")
    assert "link=" not in second.url


def test_a_stranger_sees_only_how_to_log_in(people: People, desk: Desk) -> None:
    page = people.open_stranger()
    page.goto(f"{desk.page_url}#/jobs")
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    expect(page.get_by_label("Token")).to_have_count(0)
    assert "talker" not in page.content()


def test_tokens_are_accepted_over_tls_only_and_never_shown(people: People, desk: Desk) -> None:
    base = f"{desk.server.rest_url}/ui/"
    page = people.open_stranger(base=base, ignore_https_errors=True)
    page.goto(base)
    page.get_by_label("Token").fill("not-a-token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert "not-a-token" not in page.content()
    page.get_by_label("Token").fill(desk.tokens["owner"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    stored = page.evaluate("JSON.stringify([localStorage, document.cookie])")
    assert desk.tokens["owner"] not in stored


def test_logging_out_ends_the_login(people: People, desk: Desk) -> None:
    page = people.open_stranger()
    page.goto(desk.make_link("owner"))
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    assert page.evaluate("localStorage.getItem('trainmaster.login')") is None


def test_a_key_without_its_cookie_is_no_login(people: People) -> None:
    page = people.open("#/jobs")
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()


def test_a_cookie_without_its_key_is_no_login(people: People) -> None:
    page = people.open("#/jobs")
    page.evaluate("localStorage.clear()")
    page.reload()
    expect(page.get_by_role("heading", name="With a link")).to_be_visible()
    assert len(page.context.cookies()) == 1
    assert page.evaluate("fetch('../api/v1/me').then((answer) => answer.status)") == 401


def test_a_page_of_another_server_on_this_machine_gets_nowhere(people: People, desk: Desk, browser: Browser) -> None:
    """Its requests bring the cookie, because cookies know no ports."""
    login = people.open("#/").context.storage_state()
    context = browser.new_context(storage_state=login)
    page = context.new_page()
    answers: list[tuple[str, str, int]] = []

    def note(answer: Response) -> None:
        answers.append((answer.request.method, urlsplit(answer.url).path, answer.status))

    page.on("response", note)
    with serving_page() as address:
        page.goto(address)
        root = desk.page_url.removesuffix("ui/")
        reads = [page.evaluate(ASK, [f"{root}api/v1/{path}", "GET"]) for path in ("me", "jobs", "stream")]
        writes = [page.evaluate(ASK, [f"{root}api/v1/{path}", "POST"]) for path in ("logout", "login-links")]
    context.close()
    assert set(reads + writes) == {"opaque"}, "the page may read no answer"
    assert answers[-5:] == [
        ("GET", "/api/v1/me", 401),
        ("GET", "/api/v1/jobs", 401),
        ("GET", "/api/v1/stream", 401),
        ("POST", "/api/v1/logout", 403),
        ("POST", "/api/v1/login-links", 403),
    ]
    expect(people.open("#/").get_by_role("navigation", name="Pages")).to_be_visible()


ASK = """([url, method]) =>
  fetch(url, { method, mode: "no-cors", credentials: "include" }).then((answer) => answer.type)"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving_page() -> Iterator[str]:
    """An empty page at another port."""
    server = HTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_language_follows_the_browser_and_can_be_changed(people: People) -> None:
    page = people.open("#/jobs", locale="ko-KR")
    expect(page.get_by_role("link", name="작업", exact=True)).to_have_attribute("aria-current", "page")
    assert page.evaluate("document.documentElement.lang") == "ko"
    page.get_by_role("button", name="설정").click()
    page.get_by_role("combobox", name="언어").select_option("en")
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()


def test_an_unknown_page_says_so(people: People) -> None:
    page = people.open("#/nothing/here")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Jobs").click()
    expect(page).to_have_url(re.compile(r"#/jobs$"))
