"""A browser at the dashboard of a real server: real connections to one of its doors, both halves of a login kept.

browser = DoorBrowser.at_plain(server)
browser.open(make_link(server, token))
assert browser.get("/api/v1/me").status == 200
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from tests.support.clients import Raw
from tests.support.server import ServerProcess


@dataclass(frozen=True)
class DoorAnswer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def kind(self) -> str:
        """The last word of the problem's type; "" for no problem."""
        if self.headers.get_content_type() != "application/problem+json":
            return ""
        return str(json.loads(self.body)["type"]).rpartition(":")[2]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class DoorBrowser:
    url: str
    context: ssl.SSLContext | None = None
    key: str = ""
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"sec-fetch-site": "same-origin"})

    @classmethod
    def at_plain(cls, server: ServerProcess) -> DoorBrowser:
        return cls(str(server.info["dashboard"]["url"]).removesuffix("/ui/"))

    @classmethod
    def at_tls(cls, server: ServerProcess) -> DoorBrowser:
        return cls(server.rest_url, ssl.create_default_context(cafile=str(server.ca)))

    def call(self, method: str, path: str, body: Any = None, **changed: str | None) -> DoorAnswer:
        """On a connection of its own. `changed`: headers instead of the usual ones, with `_` for `-`; None: without."""
        place = urlsplit(self.url).netloc
        connection = (
            http.client.HTTPConnection(place, timeout=30)
            if self.context is None
            else http.client.HTTPSConnection(place, timeout=30, context=self.context)
        )
        usual = {**self.headers, "content-type": "application/json", "host": place}
        usual |= {"x-trainmaster-login": self.key} if self.key else {}
        usual |= {"cookie": self.cookie} if self.cookie else {}
        sent = {**usual, **{name.replace("_", "-"): value for name, value in changed.items()}}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if data is not None:
                connection.putheader("content-length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            is_stream = response.headers.get_content_type() == "text/event-stream"
            answer = DoorAnswer(response.status, response.headers, b"" if is_stream else response.read())
        finally:
            connection.close()
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return answer

    def get(self, path: str, **changed: str | None) -> DoorAnswer:
        return self.call("GET", path, **changed)

    def open(self, link: str, **wish: Any) -> None:
        answer = self.call("POST", "/api/v1/login", {"link": link, **wish})
        assert answer.status == 200, answer.body
        self.key = answer.json()["key"]

    def copy(self, **changes: Any) -> DoorBrowser:
        return replace(self, headers=dict(self.headers), **changes)


def make_link(server: ServerProcess, token: str, *, read_only: bool = False) -> str:
    """As `trainmaster dashboard` does."""
    raw = Raw(server.rest_url, ssl.create_default_context(cafile=str(server.ca)), token)
    try:
        return str(raw.must("POST", "/api/v1/login-links", {"read_only": read_only})["link"])
    finally:
        raw.close()


def read_owner_token(server: ServerProcess) -> str:
    return (server.home / "pki" / "owner.token").read_text().strip()
