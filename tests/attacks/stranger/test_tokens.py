"""Somebody who has seen a token, and has no key, makes others of it. Nothing but 401 comes back, on both ports."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator

import pytest

from tests.attacks.site import Separate, Site

pytestmark = pytest.mark.attacks

ADMIN = "system:serviceaccount:kubeflow-system:default"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def list_forgeries(token: str, ca: bytes) -> Iterator[tuple[str, str]]:
    head, claims, signature = token.split(".")
    read = json.loads(base64.urlsafe_b64decode(claims + "=="))
    better = encode(json.dumps({**read, "sub": ADMIN}).encode())
    later = encode(json.dumps({**read, "exp": 1 << 60}).encode())
    yield "another subject", f"{head}.{better}.{signature}"
    yield "a later end", f"{head}.{later}.{signature}"
    for name in ("none", "None", "NONE", ""):
        yield f"algorithm {name!r}", f"{encode(json.dumps({'alg': name, 'typ': 'JWT'}).encode())}.{better}."
    for key in (b"", b"secret", ca, b"\0" * 32):
        signed = f"{head}.{better}"
        yield f"signed with {key[:10]!r}", f"{signed}.{encode(hmac.digest(key, signed.encode(), hashlib.sha256))}"
    yield "no signature", f"{head}.{better}."
    yield "half a signature", f"{head}.{claims}.{signature[:20]}"
    yield "padding", f"{token}="
    yield "twice", f"{token}.{token}"
    yield "a deep header", f"{encode(b'[' * 5_000)}.{claims}.{signature}"
    yield "a deep body", f"{head}.{encode(b'[' * 5_000)}.{signature}"
    named = encode(b'{"alg":"HS256","kid":"../../dev/null"}')
    yield "a key by name", f"{named}.{better}.{signature}"
    yield "not base64", "$$.$$.$$"
    yield "dots", "." * 4_000


def test_a_token_that_was_changed_or_made_up_opens_nothing(site: Site) -> None:
    assert site.ann.kube.call("GET", site.ann.path("pods"))[0] == 200, "the real one does"
    for name, token in list_forgeries(site.ann.token, site.server.ca.read_bytes()):
        for port, path in ((site.ann.kube, site.ann.path("pods")), (site.ann.rest, "/api/v1/me")):
            assert isinstance(port, Separate)
            status, body = port.call("GET", path, Authorization=f"Bearer {token}")
            assert status == 401, (name, path, body)
    assert site.is_alive()
