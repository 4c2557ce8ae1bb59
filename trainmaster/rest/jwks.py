"""Public keys of an identity provider (RFC 7517), for tokens that it signed: parsed, fetched, renewed, let go in time.

A key says which algorithms it may be used with: RSA keys never verify HMACs and shared secrets are no keys here, so a
token cannot choose a weaker check than its key is for. A key id that nobody knows lets the set be fetched again, but
not more often than once a minute, whatever is sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

Fetch = Callable[[], Awaitable[Any]]
"""The key set as it stands with the provider, parsed. KeysUnavailable when it cannot be had."""

_HASHES: Mapping[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: Mapping[str, tuple[ec.EllipticCurve, str]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
_RSA = frozenset(f"{form}{size}" for form in ("RS", "PS") for size in _HASHES)
_LEAST_RSA_BITS = 2048
_MOST_KEYS = 100
_FRESH_SECONDS = 600.0
"""A key that the provider withdraws is not taken any more after this."""
_PAUSE_SECONDS = 60.0
"""Between two fetches, however many tokens name keys that are unknown and however often it fails."""
_LONGEST_SECONDS = 86_400.0
"""For which keys are used while the provider does not answer."""


class KeysUnavailable(Exception):
    """Why there are no keys, for the log."""


class BadKey(ValueError):
    """Why a key of a set is not used."""


@dataclass(frozen=True, slots=True)
class Key:
    kid: str
    algorithms: frozenset[str]
    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

    def is_signature(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm not in self.algorithms:
            return False
        try:
            self._verify(algorithm, signed, signature)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True

    def _verify(self, algorithm: str, signed: bytes, signature: bytes) -> None:
        public = self.public
        if isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(signature, signed)
            return
        digest = _HASHES[algorithm[2:]]
        if isinstance(public, ec.EllipticCurvePublicKey):
            size = (public.curve.key_size + 7) // 8
            if len(signature) != 2 * size:
                raise InvalidSignature
            numbers = (int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
            public.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(digest))
        elif algorithm.startswith("PS"):
            form = padding.PSS(padding.MGF1(digest), digest.digest_size)
            public.verify(signature, signed, form, digest)
        else:
            public.verify(signature, signed, padding.PKCS1v15(), digest)


def decode(text: str) -> bytes:
    """Base64url without padding, exactly. ValueError for anything else."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise binascii.Error("not base64url")
    return data


def parse_set(document: Any) -> list[Key]:
    """Those that can verify signatures; others are left out. KeysUnavailable when it is no key set, or has none."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise KeysUnavailable(f"this is no JSON Web Key Set of at most {_MOST_KEYS} keys")
    found = []
    for entry in entries:
        try:
            found.append(parse_key(entry))
        except (BadKey, ValueError, TypeError, KeyError) as error:
            log.debug("a key is not used", extra={"action": "rest.oidc_key", "reason": str(error)})
    if not found:
        raise KeysUnavailable("the key set has no key that verifies signatures")
    return found


def parse_key(entry: Any) -> Key:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        raise BadKey("it is not for signatures")
    public, algorithms = _PARSERS.get(str(entry.get("kty")), _refuse)(entry)
    named = entry.get("alg")
    if named is not None:
        algorithms &= {named}
    if not algorithms:
        raise BadKey("its algorithm is not one that fits it")
    return Key(str(entry.get("kid") or ""), frozenset(algorithms), public)


def _refuse(entry: Mapping[str, Any]) -> Any:
    raise BadKey("its type is not RSA, EC or OKP")


def _parse_rsa(entry: Mapping[str, Any]) -> tuple[rsa.RSAPublicKey, set[str]]:
    public = rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()
    if public.key_size < _LEAST_RSA_BITS:
        raise BadKey(f"it has fewer than {_LEAST_RSA_BITS} bits")
    return public, set(_RSA)


def _parse_ec(entry: Mapping[str, Any]) -> tuple[ec.EllipticCurvePublicKey, set[str]]:
    curve, algorithm = _CURVES[entry["crv"]]
    public = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve).public_key()
    return public, {algorithm}


def _parse_okp(entry: Mapping[str, Any]) -> tuple[ed25519.Ed25519PublicKey, set[str]]:
    if entry["crv"] != "Ed25519":
        raise BadKey("its curve is not Ed25519")
    return ed25519.Ed25519PublicKey.from_public_bytes(decode(entry["x"])), {"EdDSA", "Ed25519"}


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {"RSA": _parse_rsa, "EC": _parse_ec, "OKP": _parse_okp}


def _number(text: str) -> int:
    return int.from_bytes(decode(text))


class KeySet:
    """The provider's keys as they are known now."""

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[Key] = ()
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._problem = ""
        self._fetching = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> list[Key]:
        """Keys that may have signed such a token. KeysUnavailable when none at all are known."""
        if self._get_age() > _FRESH_SECONDS or not self._choose(kid, algorithm):
            await self._renew()
        if self._get_age() > _LONGEST_SECONDS:
            raise KeysUnavailable(self._problem)
        return self._choose(kid, algorithm)

    def _get_age(self) -> float:
        return self._clock.boot() - self._fetched

    def _choose(self, kid: str | None, algorithm: str) -> list[Key]:
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        return fitting if kid is None else [key for key in fitting if key.kid == kid]

    async def _renew(self) -> None:
        """One at a time; those who waited for it do not ask again."""
        async with self._fetching:
            now = self._clock.boot()
            if now - self._tried < _PAUSE_SECONDS:
                return
            self._tried = now
            try:
                self._keys = parse_set(await self._fetch())
                self._fetched = now
            except KeysUnavailable as error:
                self._problem = str(error)
                log.warning("no keys of the issuer", extra={"action": "rest.oidc_keys", "reason": self._problem})
