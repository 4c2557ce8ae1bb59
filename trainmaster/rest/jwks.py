"""Public keys of an identity provider (RFC 7517): parsed, fetched, renewed, and dropped when outdated.

PyJWT parses them and verifies signatures. Each key is restricted to certain algorithms: RSA keys never verify HMACs,
and shared secrets are not accepted, so a token cannot choose a weaker check. An unknown key id causes the set to be
fetched again, at most once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainmaster.kit.clock import Clock

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger(__name__)

Fetch = Callable[[], Awaitable[object]]
"""The provider's current key set, parsed. Raises KeysUnavailable."""

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By type and curve of the key. Other algorithms are never used, even if the library supports them."""
_LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 8192
"""Verifying a signature with a larger key would block the event loop for too long."""
_MOST_KEYS = 100
_FRESH_SECONDS = 600.0
"""How long a key that the provider has withdrawn may still be accepted."""
_PAUSE_SECONDS = 60.0
"""The minimum time between two fetches, regardless of unknown keys and failures."""
_LONGEST_SECONDS = 86_400.0
"""How long keys are used while the provider does not answer."""


class KeysUnavailable(Exception):
    """Why there are no keys, for the log."""


class BadKey(ValueError):
    """Why a key is not used."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    kid: str
    algorithms: frozenset[str]
    public: PyJWK


def parse_set(document: object) -> list[VerificationKey]:
    """Keys that can verify signatures; others are ignored. Raises KeysUnavailable if it is not a key set, or has
    none."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise KeysUnavailable(f"this is no JSON Web Key Set of at most {_MOST_KEYS} keys")
    found = []
    for entry in entries:
        try:
            found.append(parse_key(entry))
        except BadKey as error:
            log.debug("a key is not used", extra={"action": "rest.oidc_key", "reason": str(error)})
    if not found:
        raise KeysUnavailable("the key set has no key that verifies signatures")
    return found


def parse_key(entry: object) -> VerificationKey:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        raise BadKey("it is not for signatures")
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise BadKey("it is not for verifying")
    if "d" in entry:
        raise BadKey("it is a private key, and everybody can read it")
    kind, curve = entry.get("kty"), entry.get("crv", "")
    fitting = _ALGORITHMS.get((kind, curve)) if isinstance(kind, str) and isinstance(curve, str) else None
    if fitting is None:
        raise BadKey("it is not RSA, EC on a curve of NIST, or Ed25519")
    named = entry.get("alg")
    algorithms = fitting if named is None else tuple(name for name in fitting if name == named)
    if not algorithms:
        raise BadKey("its algorithm is not one that fits it")
    kid = entry.get("kid")
    return VerificationKey(kid if isinstance(kid, str) else "", frozenset(algorithms), _load(entry, algorithms[0]))


def _load(entry: dict[str, Any], algorithm: str) -> PyJWK:
    # Imported on use, because most homes have no identity provider.
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415

    try:
        loaded = PyJWK(entry, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadKey(f"it cannot be read: {error}") from None
    if entry["kty"] == "RSA" and not _LEAST_RSA_BITS <= loaded.key.key_size <= _MOST_RSA_BITS:
        raise BadKey(f"it has fewer than {_LEAST_RSA_BITS} or more than {_MOST_RSA_BITS} bits")
    return loaded


class KeySet:
    """The provider's keys that are currently known."""

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[VerificationKey] = ()
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._problem = ""
        self._fetching = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> list[VerificationKey]:
        """Keys that may have signed such a token. Raises KeysUnavailable if no keys are known."""
        if self._get_age() > _FRESH_SECONDS or not self._choose(kid, algorithm):
            await self._renew()
        if self._get_age() > _LONGEST_SECONDS:
            raise KeysUnavailable(self._problem)
        return self._choose(kid, algorithm)

    def _get_age(self) -> float:
        return self._clock.boot() - self._fetched

    def _choose(self, kid: str | None, algorithm: str) -> list[VerificationKey]:
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        return fitting if kid is None else [key for key in fitting if key.kid == kid]

    async def _renew(self) -> None:
        """One fetch at a time; callers that waited for it do not repeat it."""
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
