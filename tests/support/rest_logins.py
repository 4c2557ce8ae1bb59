"""A browser at the dashboard, in this process: it keeps both halves of a login and sends them as the page does.

browser = Browser(rest, scheme="http")
await browser.open(await browser.make_link(rest.owner))
assert (await browser.get("/api/v1/me")).status == 200
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.rest import RestApi
from tests.unit.rest.asgi import Answer

PLAIN, TLS = "http", "https"


@dataclass
class Browser:
    rest: RestApi
    scheme: str = TLS
    address: str = "127.0.0.1"
    host: str = "localhost:1"
    key: str = ""
    cookie: str = ""

    async def call(self, method: str, url: str, body: Any = None, **changed: str | None) -> Answer:
        """`changed`: headers instead of those that the page sends, with `_` for `-`; None leaves one out."""
        headers: dict[str, str | None] = {
            "host": self.host,
            "x-trainmaster-login": self.key or None,
            "cookie": self.cookie or None,
            "sec-fetch-site": "same-origin",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        sent = [(name, value) for name, value in headers.items() if value is not None]
        answer = await self.rest.call(
            method, url, token=None, body=body, headers=sent, scheme=self.scheme, address=self.address
        )
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def get(self, url: str = "/api/v1/me", **changed: str | None) -> Answer:
        return await self.call("GET", url, **changed)

    async def make_link(self, token: str, **wish: Any) -> str:
        """As `trainmaster dashboard` does, over TLS."""
        answer = await self.rest.call("POST", "/api/v1/login-links", token=token, body=wish)
        assert answer.status == 201, answer.body
        link: str = answer.json()["link"]
        return link

    async def log_in(self, **wish: Any) -> Answer:
        answer = await self.call("POST", "/api/v1/login", wish)
        if answer.status == 200:
            self.key = answer.json()["key"]
        return answer

    async def open(self, link: str, **wish: Any) -> None:
        answer = await self.log_in(link=link, **wish)
        assert answer.status == 200, answer.body
