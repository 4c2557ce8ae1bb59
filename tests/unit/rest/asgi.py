"""Calls an ASGI application in process, one request at a time; no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import orjson


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


async def call(
    app: Any,
    method: str,
    url: str,
    *,
    token: str | None = "good",
    body: Any = None,
    headers: Sequence[tuple[str, str]] = (),
    pieces: Sequence[bytes] | None = None,
    stall: bool = False,
    content_type: str = "application/json",
    scheme: str = "https",
    address: str = "127.0.0.1",
) -> Answer:
    """`body` is sent as JSON, `pieces` as they are and unannounced; `stall`: the rest never arrives. `scheme` http is
    the plain door, `address` that of the client."""
    raw = b"" if body is None else orjson.dumps(body)
    chunks = list(pieces) if pieces is not None else [raw]
    parts = urlsplit(url)
    sent = [(name.lower().encode(), value.encode()) for name, value in headers]
    if token is not None:
        sent.append((b"authorization", f"Bearer {token}".encode()))
    sent.append((b"content-type", content_type.encode()))
    if pieces is None and raw:
        sent.append((b"content-length", str(len(raw)).encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": parts.path,
        "raw_path": quote(parts.path).encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": sent,
        "client": (address, 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    messages: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not chunks:
            if stall:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}
        piece = chunks.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(chunks) or stall}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in messages[1:]))
