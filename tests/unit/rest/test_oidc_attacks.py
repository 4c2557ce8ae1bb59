"""What somebody without a key of the issuer tries: tokens that two readers would read in two ways, and addresses of
keys that lead into the server's own network."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.unit.rest.oidc_provider import describe, sign
from tests.unit.rest.test_oidc import KEYS, OTHER, P256, RSA, Scene, play
from trainmaster.auth.pki import Pki
from trainmaster.kit.clock import SystemClock
from trainmaster.rest.jwks import KeysUnavailable, parse_set
from trainmaster.rest.provider import ProviderSource, build_fetch, choose_address

pytestmark = pytest.mark.unit


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sign_bytes(head: bytes, claims: bytes) -> str:
    """Signed by the issuer: what is refused then is refused for what it says."""
    signed = f"{encode(head)}.{encode(claims)}"
    return f"{signed}.{encode(RSA.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


HEAD = b'{"alg":"RS256","kid":"rsa"}'


def test_a_token_that_could_be_read_in_two_ways_is_refused_even_when_the_issuer_signed_it() -> None:
    async def test(scene: Scene) -> None:
        claims = json.dumps(scene.claim()).encode()
        assert (await scene.verifier.verify(sign_bytes(HEAD, claims))).user == "oidc:ann", "the scene is right"
        body = claims[:-1]
        for name, token in {
            "a claim twice": sign_bytes(HEAD, body + b',"sub":"root"}'),
            "an issuer twice": sign_bytes(HEAD, b'{"iss":"https://evil.example.org",' + claims[1:]),
            "an audience twice": sign_bytes(HEAD, body + b',"aud":"trainmaster"}'),
            "a name twice deep inside": sign_bytes(HEAD, body + b',"x":{"a":1,"a":2}}'),
            "an algorithm twice": sign_bytes(b'{"alg":"none","alg":"RS256","kid":"rsa"}', claims),
            "NaN": sign_bytes(HEAD, body + b',"nbf":NaN}'),
            "infinity": sign_bytes(HEAD, body + b',"nbf":-Infinity}'),
            "a number beyond floats": sign_bytes(HEAD, body + b',"nbf":1e999}'),
            "many digits": sign_bytes(HEAD, body + b',"nbf":' + b"9" * 6_000 + b"}"),
            "deep claims": sign_bytes(HEAD, body + b',"x":' + b"[" * 6_000 + b"]" * 6_000 + b"}"),
            "a deep header": sign_bytes(
                b'{"alg":"RS256","kid":"rsa","x":' + b"[" * 6_000 + b"]" * 6_000 + b"}", claims
            ),
            "an unencoded payload": sign_bytes(b'{"alg":"RS256","kid":"rsa","b64":false}', claims),
            "an unencoded payload that is critical": sign_bytes(
                b'{"alg":"RS256","kid":"rsa","b64":false,"crit":["b64"]}', claims
            ),
            "not UTF-8": sign_bytes(HEAD, body + b',"x":"\xff"}'),
            "a byte order mark": sign_bytes(HEAD, b"\xef\xbb\xbf" + claims),
            "an algorithm that is a list": sign_bytes(b'{"alg":["RS256"],"kid":"rsa"}', claims),
            "a key id that is an object": sign_bytes(b'{"alg":"RS256","kid":{}}', claims),
        }.items():
            assert (await scene.refuse(token)).status == 401, name

    play(test)


def test_a_header_cannot_bring_or_name_its_own_key() -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    async def test(scene: Scene) -> None:
        mine = describe(OTHER, "rsa")
        for header in (
            {"jwk": mine}, {"jku": "https://evil.example.org/keys"}, {"x5u": "https://evil.example.org/chain"},
            {"x5c": ["AAAA"]}, {"kid": "../../dev/null"}, {"kid": "rsa' OR '1'='1"}, {"kid": ""}, {"kid": "rsa\0"},
        ):  # fmt: skip
            token = sign(OTHER, {"alg": "RS256", "kid": "rsa", **header}, scene.claim())
            assert (await scene.refuse(token)).status == 401, header
        for key in (public, public.strip(), json.dumps(KEYS[0]).encode(), b"", b"null"):
            head, body = encode(b'{"alg":"HS256","kid":"rsa"}'), encode(json.dumps(scene.claim()).encode())
            forged = encode(hmac.digest(key, f"{head}.{body}".encode(), hashlib.sha256))
            assert (await scene.refuse(f"{head}.{body}.{forged}")).status == 401
        # The signature of an elliptic curve has one form here, not also that of certificates; and zeros are none.
        for signature in (b"\0" * 64, b"\0" * 63, b"\xff" * 64, b""):
            head, body = encode(b'{"alg":"ES256","kid":"p256"}'), encode(json.dumps(scene.claim()).encode())
            assert (await scene.refuse(f"{head}.{body}.{encode(signature)}")).status == 401
        assert scene.provider.asked == 1

    play(test)


def test_a_huge_token_is_not_even_looked_at() -> None:
    scene = Scene()
    assert not scene.verifier.is_meant(scene.token(pad="x" * 20_000))


def test_keys_that_cannot_be_trusted_are_left_out() -> None:
    private = {**describe(RSA, "a"), "d": "AQAB"}
    for bad in (
        private, {**describe(RSA, "b"), "key_ops": ["encrypt"]}, {**describe(RSA, "c"), "key_ops": 7},
        {**describe(P256, "d"), "crv": "P-384"}, {**describe(P256, "e"), "crv": ["P-256"]}, {"kty": ["RSA"]},
        {**describe(P256, "f"), "y": describe(P256, "f")["x"]}, {**describe(RSA, "g"), "e": "AA"},
        {**describe(RSA, "h"), "alg": "none"}, {**describe(RSA, "i"), "alg": "ES256"},
        {**describe(RSA, "j"), "n": encode(b"\xff" * 4_096)},
    ):  # fmt: skip
        with pytest.raises(KeysUnavailable):
            parse_set({"keys": [bad]})


@pytest.mark.parametrize(
    ("address", "public", "private"),
    [
        ("93.184.215.14", True, True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("10.0.0.7", False, True),
        ("192.168.1.1", False, True),
        ("172.16.5.5", False, True),
        ("100.64.0.1", False, True),
        ("fd00::1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("fe80::1%eth0", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
    ],
)
def test_which_addresses_are_asked(address: str, public: bool, private: bool) -> None:
    for allowed, good in ((False, public), (True, private)):
        if good:
            assert choose_address("login", [address], allow_private=allowed) == address
        else:
            with pytest.raises(ValueError, match="private address"):
                choose_address("login", [address], allow_private=allowed)


class Answering(threading.Thread):
    """Answers every connection with these bytes; counts them. With TLS where a context is given."""

    def __init__(self, answer: Callable[[], bytes], tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._answer, self._tls = answer, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked: list[bytes] = []
        self.drip = threading.Event()
        self.drip.set()

    def run(self) -> None:
        while True:
            try:
                channel, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._tls is not None:
                    channel = self._tls.wrap_socket(channel, server_side=True)
                self.asked.append(channel.recv(4096))
                for byte in self._answer() if not self.drip.is_set() else [self._answer()]:
                    channel.sendall(bytes([byte]) if isinstance(byte, int) else byte)
                    if not self.drip.is_set():
                        self.drip.wait(0.05)
            except OSError:
                pass
            finally:
                channel.close()

    def close(self) -> None:
        self.drip.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()


@contextmanager
def answering(answer: Callable[[], bytes], tls: ssl.SSLContext | None = None) -> Iterator[Answering]:
    server = Answering(answer, tls)
    server.start()
    try:
        yield server
    finally:
        server.close()


def reply(body: bytes, line: str = "200 OK", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {line}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + body


GOOD = reply(json.dumps({"keys": KEYS}).encode())


def fetch(source: ProviderSource, **more: Any) -> Any:
    async def main() -> Any:
        return await build_fetch(source, **more)()

    return asyncio.run(main())


def test_a_name_that_leads_to_a_private_address_is_asked_only_where_that_is_set(tmp_path: Path) -> None:
    pki = Pki(tmp_path, SystemClock())
    pki.ensure(["login.example.org"])
    ca = pki.ca.certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.server.certificate, pki.server.key)
    with answering(lambda: GOOD, tls) as server:
        url = f"https://login.example.org:{server.port}"
        source = ProviderSource(url, f"{url}/keys", str(ca))
        calls: list[str] = []

        def resolve(host: str, port: int) -> list[str]:
            """Rebinds: every question gets another answer."""
            calls.append(host)
            return ["127.0.0.1"] if len(calls) == 1 else ["10.255.255.1"]

        with pytest.raises(KeysUnavailable, match="oidc_private_addresses"):
            fetch(source, resolve=resolve)
        assert server.asked == []
        calls.clear()
        allowed = ProviderSource(url, f"{url}/keys", str(ca), private=True)
        assert len(parse_set(fetch(allowed, resolve=resolve))) == len(KEYS)
        assert calls == ["login.example.org"], "what was checked is what was asked"
        other = ProviderSource(url, f"https://other.example.org:{server.port}/keys", str(ca), private=True)
        with pytest.raises(KeysUnavailable, match="certificate"):
            fetch(other, resolve=lambda host, port: ["127.0.0.1"])


def test_the_issuers_description_cannot_lead_elsewhere() -> None:
    with answering(lambda: GOOD) as inside:
        page = b""
        with answering(lambda: reply(page)) as issuer:
            url = f"http://127.0.0.1:{issuer.port}"
            for target in (
                f"http://127.0.0.2:{inside.port}/", f"https://internal.example.org:{inside.port}/",
                f"http://169.254.169.254:{inside.port}/", f"http://127.0.0.1@127.0.0.2:{inside.port}/",
                "file:///etc/passwd", "", f"http://0x7f000001:{inside.port}/", f"http://[::ffff:127.0.0.1]:{inside.port}/",
            ):  # fmt: skip
                page = json.dumps({"issuer": url, "jwks_uri": target}).encode()
                with pytest.raises(KeysUnavailable):
                    fetch(
                        ProviderSource(url),
                        resolve=lambda host, port: ["127.0.0.1"] if host.startswith("internal") else [host],
                    )
            assert inside.asked == []
            page = json.dumps({"issuer": url, "jwks_uri": f"http://127.0.0.1:{inside.port}/keys"}).encode()
            assert len(parse_set(fetch(ProviderSource(url)))) == len(KEYS), "the very address that the owner named"


def test_redirects_large_and_slow_answers_end_the_fetch() -> None:
    with answering(lambda: GOOD) as elsewhere:
        target = f"http://127.0.0.1:{elsewhere.port}/"
        answers = [
            reply(b"", "302 Found", f"Location: {target}"),
            reply(b"", "301 Moved Permanently", f"Location: {target}"),
            reply(b" " * 1_100_000),
            b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1_100_000,
            reply(b"[" * 100_000),
            reply(b"<html>"),
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n{}",
            b"nonsense\r\n\r\n",
            b"",
        ]
        with answering(lambda: answers[0]) as server:
            while answers:
                with pytest.raises(KeysUnavailable):
                    fetch(ProviderSource("https://x", f"http://127.0.0.1:{server.port}/keys"))
                del answers[0]
        assert elsewhere.asked == []
        # A byte now and then keeps every single read within its limit; the whole has one too.
        elsewhere.drip.clear()
        with pytest.raises(KeysUnavailable):
            fetch(ProviderSource("https://x", target), seconds=0.5)
