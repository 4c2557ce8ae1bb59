"""Plain text as an HTTP answer, for the operator's ports for probes and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

PLAIN = "text/plain; charset=utf-8"


def encode_text(
    code: int, text: str, *, keep_alive: bool, content_type: str = PLAIN, headers: Sequence[str] = ()
) -> bytes:
    body = text.encode()
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        *headers,
        *([] if keep_alive else ["Connection: close"]),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body
