"""An identity provider for tests: keys made on the spot, tokens signed with them, and its key set."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.seam.rest_site import encode

ISSUER = "https://login.example.org"
AUDIENCE = "trainmaster"
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def make_rsa(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def describe(key: Private, kid: str, **more: str) -> dict[str, Any]:
    """The public half as a JWK."""
    entry: dict[str, Any] = {"kid": kid, "use": "sig", **more}
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e), **entry}
    if isinstance(public, ec.EllipticCurvePublicKey):
        point, size = public.public_numbers(), (public.curve.key_size + 7) // 8
        names = {256: "P-256", 384: "P-384", 521: "P-521"}
        x, y = encode(point.x.to_bytes(size)), encode(point.y.to_bytes(size))
        return {"kty": "EC", "crv": names[public.curve.key_size], "x": x, "y": y, **entry}
    return {"kty": "OKP", "crv": "Ed25519", "x": encode(public.public_bytes(Encoding.Raw, PublicFormat.Raw)), **entry}


def _number(value: int) -> str:
    return encode(value.to_bytes((value.bit_length() + 7) // 8))


def sign(key: Private | bytes | None, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """`bytes` is a shared secret (HS256), None no signature at all."""
    signed = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"
    return f"{signed}.{encode(_sign(key, str(header.get('alg')), signed.encode()))}"


def _sign(key: Private | bytes | None, algorithm: str, data: bytes) -> bytes:
    digest = {"384": hashes.SHA384(), "512": hashes.SHA512()}.get(algorithm[2:], hashes.SHA256())
    if key is None:
        return b""
    if isinstance(key, bytes):
        return hmac.digest(key, data, hashlib.sha256)
    if isinstance(key, rsa.RSAPrivateKey):
        if algorithm.startswith("PS"):
            return key.sign(data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return key.sign(data, padding.PKCS1v15(), digest)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.curve.key_size + 7) // 8
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest)))
        return r.to_bytes(size) + s.to_bytes(size)
    return key.sign(data)
