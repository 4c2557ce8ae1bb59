"""Programs and pages beside the dashboard: other ports of the same host, other users of the machine, other sites."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.attacks.site import Site
from tests.support.doors import DoorBrowser, make_link, read_owner_token
from tests.support.server import start_server

pytestmark = pytest.mark.attacks


@pytest.fixture
def browser(site: Site) -> DoorBrowser:
    opened = DoorBrowser.at_plain(site.server)
    opened.open(make_link(site.server, site.owner.token))
    return opened


class Neighbour:
    """Another program that listens on this host, and keeps what a browser sends it."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        sock, _ = self._listener.accept()
        with sock:
            sock.settimeout(5)
            self.heard = sock.recv(65536)
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


def read_header(raw: bytes, name: str) -> str:
    for line in raw.decode("latin-1").split("\r\n"):
        key, _, value = line.partition(": ")
        if key.lower() == name:
            return value
    return ""


def test_what_a_browser_sends_to_another_port_opens_nothing(site: Site, browser: DoorBrowser) -> None:
    """Cookies know no ports, so the neighbour gets the cookie. The key stays with the page's own address."""
    neighbour = Neighbour()
    visit = browser.copy(url=f"http://127.0.0.1:{neighbour.port}", key="")
    visit.get("/")
    neighbour.close()
    stolen = read_header(neighbour.heard, "cookie")
    assert stolen and stolen == browser.cookie
    for door in (DoorBrowser.at_plain(site.server), DoorBrowser.at_tls(site.server)):
        for key in ("", secrets.token_urlsafe(32), stolen.partition("=")[2][:43]):
            assert door.copy(cookie=stolen, key=key).get("/api/v1/me").status == 401
    assert browser.get("/api/v1/me").status == 200


def test_a_cookie_that_a_neighbour_plants_is_not_taken_for_the_pages_own(site: Site, browser: DoorBrowser) -> None:
    mallory = DoorBrowser.at_plain(site.server)
    mallory.open(make_link(site.server, site.ann.token))
    assert browser.copy(cookie=mallory.cookie).get("/api/v1/me").status == 401
    both = browser.copy(cookie=f"{mallory.cookie}; {browser.cookie}").get("/api/v1/me")
    assert both.json()["user"] == "trainmaster:owner"


def test_whoever_takes_the_port_of_a_stopped_server_gets_logins_that_have_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with start_server(home) as server:
        browser = DoorBrowser.at_plain(server)
        browser.open(make_link(server, read_owner_token(server)))
        assert browser.get("/api/v1/me").status == 200
    neighbour = Neighbour(int(browser.url.rpartition(":")[2]))
    try:
        with start_server(home) as server:
            assert DoorBrowser.at_plain(server).url != browser.url
            browser.get("/api/v1/me")  # a page that is still open
            key, cookie = (read_header(neighbour.heard, name) for name in ("x-trainmaster-login", "cookie"))
            assert key == browser.key and cookie == browser.cookie
            for door in (DoorBrowser.at_plain(server), DoorBrowser.at_tls(server)):
                assert door.copy(key=key, cookie=cookie).get("/api/v1/me").status == 401
            fresh = DoorBrowser.at_plain(server)
            fresh.open(make_link(server, read_owner_token(server)))
            assert fresh.get("/api/v1/me").status == 200
    finally:
        neighbour.close()


def list_guesses(link: str) -> Iterator[str]:
    yield link.swapcase()
    yield link[:-1]
    yield f"{link} "
    yield link[:-1] + ("A" if link[-1] != "A" else "B")
    while True:
        yield secrets.token_urlsafe(32)


def test_links_cannot_be_guessed_nor_their_owners_kept_out(site: Site) -> None:
    link = make_link(site.server, site.owner.token)
    door = DoorBrowser.at_plain(site.server)
    guesses = islice(list_guesses(link), 12)
    answers = [door.call("POST", "/api/v1/login", {"link": guess}).status for guess in guesses]
    assert set(answers) <= {401, 429} and 429 in answers
    door.open(link)
    assert door.get("/api/v1/me").status == 200
    again = door.copy(key="", cookie="").call("POST", "/api/v1/login", {"link": link})
    assert again.status in (401, 429)


def test_a_page_of_another_site_reaches_nothing_through_the_browser(site: Site, browser: DoorBrowser) -> None:
    """What a browser would send: the cookie, never the key; or a name that was made to resolve to this machine."""
    foreign = browser.copy(key="")
    foreign.headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
    assert foreign.get("/api/v1/jobs").status == 401
    assert foreign.call("DELETE", "/api/v1/jobs/x?namespace=default").status == 403
    assert foreign.call("POST", "/api/v1/login", {"link": make_link(site.server, site.ann.token)}).status == 403
    assert browser.get("/api/v1/me", host="rebound.example").status == 421
