"""Tokens of an identity provider: which are believed, whose they are, and every way to forge one that does not work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.unit.rest.oidc_provider import AUDIENCE, ISSUER, describe, make_rsa, sign
from trainmaster.kit.addresses import is_private
from trainmaster.rest.jwks import KeySet, KeysUnavailable, parse_set
from trainmaster.rest.oidc import Trusted, Verifier
from trainmaster.rest.problems import Problem
from trainmaster.rest.provider import ProviderSource, build_fetch
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

RSA = make_rsa()
OTHER = make_rsa()
P256, P384, P521 = (ec.generate_private_key(curve()) for curve in (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1))
ED = ed25519.Ed25519PrivateKey.generate()
KEYS = [
    describe(RSA, "rsa"),
    describe(P256, "p256"),
    describe(P384, "p384"),
    describe(P521, "p521"),
    describe(ED, "ed"),
]


class Provider:
    """Counts how often its keys are asked for."""

    def __init__(self, keys: list[dict[str, Any]] | None = None) -> None:
        self.keys: Any = KEYS if keys is None else keys
        self.asked = 0
        self.down = False

    async def fetch(self) -> Any:
        self.asked += 1
        if self.down:
            raise KeysUnavailable("it does not answer")
        return {"keys": self.keys}


class Scene:
    def __init__(self, trusted: Trusted | None = None, keys: list[dict[str, Any]] | None = None) -> None:
        self.clock = VirtualClock()
        self.provider = Provider(keys)
        self.verifier = Verifier(
            trusted or Trusted(ISSUER, AUDIENCE), KeySet(self.provider.fetch, self.clock), self.clock
        )

    def claim(self, **more: Any) -> dict[str, Any]:
        now = int(self.clock.unix())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, **more}
        return {name: value for name, value in claims.items() if value is not ...}

    def token(self, key: Any = RSA, alg: str = "RS256", kid: Any = "rsa", **more: Any) -> str:
        header = {"alg": alg, "typ": "JWT", **({} if kid is None else {"kid": kid})}
        return sign(key, header, self.claim(**more))

    async def refuse(self, token: str) -> Problem:
        with pytest.raises(Problem) as caught:
            await self.verifier.verify(token)
        return caught.value


def play(test: Callable[[Scene], Awaitable[None]], scene: Scene | None = None) -> None:
    async def main() -> None:
        await test(scene or Scene())

    run_virtual(main())


@pytest.mark.parametrize(
    ("key", "alg", "kid"),
    [(RSA, f"{form}{size}", "rsa") for form in ("RS", "PS") for size in (256, 384, 512)]
    + [(P256, "ES256", "p256"), (P384, "ES384", "p384"), (P521, "ES512", "p521"), (ED, "EdDSA", "ed")],
)
def test_a_token_that_the_issuer_signed_says_who_calls(key: Any, alg: str, kid: str) -> None:
    async def test(scene: Scene) -> None:
        token = scene.token(key, alg, kid, groups=["a", "b", "a"])
        assert scene.verifier.is_meant(token)
        identity = await scene.verifier.verify(token)
        assert (identity.user, identity.groups) == ("oidc:ann", ("oidc:a", "oidc:b", "system:authenticated"))

    play(test)


def test_an_algorithm_that_is_not_for_the_key_is_refused() -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    async def test(scene: Scene) -> None:
        forged = [
            scene.token(None, "none"),
            scene.token(None, "None"),
            scene.token(None, "RS256"),
            scene.token(public, "HS256"),
            scene.token(public, "HS256", None),
            scene.token(P256, "ES256", "rsa"),
            scene.token(RSA, "ES256", "p256"),
            scene.token(RSA, "RS256", "p256"),
            scene.token(P256, "ES384", "p256"),
            scene.token(OTHER, "RS256"),
            scene.token(OTHER, "RS256", None),
            scene.token(RSA, "RS1"),
        ]
        for token in forged:
            assert (await scene.refuse(token)).status == 401

    play(test)


def test_keys_that_are_weak_shared_or_for_something_else_are_not_used() -> None:
    weak = [
        describe(make_rsa(1024), "a"),
        {"kty": "oct", "kid": "b", "k": "c2VjcmV0"},
        {**describe(RSA, "c"), "use": "enc"},
        describe(RSA, "d", alg="HS256"),
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        "not a key",
        None,
    ]
    for one in weak:
        with pytest.raises(KeysUnavailable):
            parse_set({"keys": [one]})
    assert [key.kid for key in parse_set({"keys": [*weak, describe(RSA, "good")]})] == ["good"]
    nonsenses: list[Any] = [None, [], {}, {"keys": {}}, {"keys": [describe(RSA, "a")] * 101}]
    for nonsense in nonsenses:
        with pytest.raises(KeysUnavailable):
            parse_set(nonsense)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example.org"}, "another issuer"),
        ({"aud": "somebody-else"}, "another audience"),
        ({"aud": ["a", "b"]}, "another audience"),
        ({"aud": ...}, "another audience"),
        ({"exp": ...}, "exp is not a number"),
        ({"exp": 10**400}, "exp is not a number"),
        ({"exp": -(10**400)}, "exp is not a number"),
        ({"exp": [1]}, "exp is not a number"),
        ({"iat": {}}, "iat is not a number"),
        ({"exp": "never"}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"exp": 1}, "expired"),
        ({"nbf": 9_999_999_999}, "not valid yet"),
        ({"iat": 9_999_999_999}, "not valid yet"),
        ({"sub": ...}, "sub is not a text"),
        ({"sub": ""}, "sub is not a text"),
        ({"sub": 7}, "sub is not a text"),
        ({"sub": "ann\r\nImpersonate-Group: system:masters"}, "printable"),
        ({"sub": "a" * 300}, "sub is not a text"),
        ({"sub": "ann "}, "name of the system"),
        ({"groups": {"a": 1}}, "not a list"),
        ({"groups": ["a", 1]}, "groups is not a text"),
        ({"groups": ["a\nb"]}, "printable"),
        ({"groups": ["g"] * 300}, "not a list of at most"),
    ],
)
def test_wrong_claims_are_refused_with_the_reason(claims: dict[str, Any], reason: str) -> None:
    async def test(scene: Scene) -> None:
        problem = await scene.refuse(scene.token(**claims))
        assert problem.status == 401
        assert reason in problem.detail

    play(test)


def test_no_provider_can_name_somebody_of_the_system() -> None:
    async def test(scene: Scene) -> None:
        for claims in ({"sub": "system:admin"}, {"groups": ["system:masters"]}, {"sub": "trainmaster:owner"}):
            assert "name of the system" in (await scene.refuse(scene.token(**claims))).detail
        assert (await scene.verifier.verify(scene.token())).user == "ann"

    play(test, Scene(Trusted(ISSUER, AUDIENCE, prefix="")))
    play(lambda scene: _refuses(scene, groups=["masters"]), Scene(Trusted(ISSUER, AUDIENCE, prefix="system:")))


async def _refuses(scene: Scene, **claims: Any) -> None:
    assert "name of the system" in (await scene.refuse(scene.token(**claims))).detail


def test_a_mail_address_counts_when_the_provider_verified_it() -> None:
    async def test(scene: Scene) -> None:
        good = scene.token(email="ann@example.org", email_verified=True)
        assert (await scene.verifier.verify(good)).user == "oidc:ann@example.org"
        bad = scene.token(email="ann@example.org", email_verified=False)
        assert "not verified" in (await scene.refuse(bad)).detail

    play(test, Scene(Trusted(ISSUER, AUDIENCE, user_claim="email")))


def test_clocks_may_differ_by_a_minute_and_no_more() -> None:
    async def test(scene: Scene) -> None:
        now = int(scene.clock.unix())
        assert (await scene.verifier.verify(scene.token(exp=now - 50, iat=now + 50, nbf=now + 50))).user == "oidc:ann"
        assert "expired" in (await scene.refuse(scene.token(exp=now - 61))).detail
        assert "not valid yet" in (await scene.refuse(scene.token(nbf=now + 62))).detail

    play(test)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "....", "é.é.é", "eyJ9.eyJ9.x", "{}.{}.{}"])
def test_what_is_no_token_of_the_issuer_is_left_to_others(text: str) -> None:
    assert not Scene().verifier.is_meant(text)


def test_a_token_with_a_strange_head_or_tail_is_refused() -> None:
    async def test(scene: Scene) -> None:
        good = scene.token()
        head, body, tail = good.split(".")
        for broken in (
            f"!!.{body}.{tail}",
            f".{body}.{tail}",
            f"{head}.{body}.{tail}=",
            f"{head}.{body}.",
            f"W10.{body}.{tail}",
        ):
            assert scene.verifier.is_meant(broken)
            assert (await scene.refuse(broken)).status == 401
        critical = sign(RSA, {"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1}, scene.claim())
        assert (await scene.refuse(critical)).status == 401
        assert (await scene.refuse(scene.token(kid=7))).status == 401

    play(test)


def test_keys_are_renewed_and_unknown_ones_are_looked_for_once_a_minute() -> None:
    async def test(scene: Scene) -> None:
        provider, clock = scene.provider, scene.clock
        for _ in range(5):
            await scene.verifier.verify(scene.token())
        assert provider.asked == 1
        provider.keys = [describe(OTHER, "new")]
        for _ in range(20):
            await scene.refuse(scene.token(OTHER, kid="new"))
        assert provider.asked == 1, "asked again within the minute"
        await clock.sleep(61)
        assert (await scene.verifier.verify(scene.token(OTHER, kid="new"))).user == "oidc:ann"
        assert provider.asked == 2
        await scene.refuse(scene.token())  # the old key is withdrawn
        await clock.sleep(601)
        await scene.verifier.verify(scene.token(OTHER, kid="new"))
        assert provider.asked == 3

    play(test)


def test_known_keys_last_a_day_while_the_provider_does_not_answer() -> None:
    async def test(scene: Scene) -> None:
        await scene.verifier.verify(scene.token())
        scene.provider.down = True
        await scene.clock.sleep(3600)
        assert (await scene.verifier.verify(scene.token())).user == "oidc:ann"
        await scene.clock.sleep(24 * 3600)
        assert (await scene.refuse(scene.token())).status == 503
        scene.provider.down = False
        await scene.clock.sleep(61)
        assert (await scene.verifier.verify(scene.token())).user == "oidc:ann"

    play(test)


@contextmanager
def serving(pages: dict[str, bytes]) -> Iterator[str]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            self.send_response(302 if body is not None and body.startswith(b"http") else 404 if body is None else 200)
            if body is not None and body.startswith(b"http"):
                self.send_header("Location", body.decode())
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it is a test."""

    server = HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_keys_come_from_a_file_an_address_or_the_issuers_description(tmp_path: Path) -> None:
    text = orjson.dumps({"keys": KEYS})
    file = tmp_path / "keys.json"
    file.write_bytes(text)
    pages: dict[str, bytes] = {
        "/keys": text,
        "/large": b" " * 1_100_000,
        "/no": b"<html>",
        "/away": b"http://example.org/",
    }

    async def main(url: str) -> None:
        pages["/.well-known/openid-configuration"] = orjson.dumps({"issuer": url, "jwks_uri": f"{url}/keys"})
        for keys in (str(file), f"{url}/keys", ""):
            assert len(parse_set(await build_fetch(ProviderSource(url, keys))())) == len(KEYS)
        wrong = [str(tmp_path / "none"), f"{url}/nowhere", f"{url}/large", f"{url}/no", f"{url}/away"]
        wrong += ["http://example.org/keys", "file:///etc/passwd", "ftp://127.0.0.1/keys", "http://127.0.0.1:1/keys"]
        for keys in wrong:
            with pytest.raises(KeysUnavailable):
                await build_fetch(ProviderSource(url, keys))()
        with pytest.raises(KeysUnavailable, match="does not describe"):
            await build_fetch(ProviderSource(f"{url}/"))()

    with serving(pages) as url:
        asyncio.run(main(url))


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://login.example.org", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://localhost", True),
        ("http://[::1]:1/", True),
        ("http://127.evil.example.org", False),
        ("http://login.example.org", False),
        ("https://", False),
        ("login.example.org", False),
        ("http://[", False),
    ],
)
def test_an_address_is_private_when_nobody_on_the_way_can_change_it(url: str, good: bool) -> None:
    assert is_private(url) is good
