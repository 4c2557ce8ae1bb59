"""Callers authenticated by an external identity provider: OpenID Connect tokens (JWTs), verified here.

The API server does not know such tokens, so the REST API impersonates: embedded with `as_user`, on a cluster with
impersonation headers under its own account. Names get a prefix, and system names (`system:...`) are never accepted, so
no provider can make its users administrators. Tokens of other issuers are passed to `ReviewingCallers`.

PyJWT verifies signatures, with the keys and algorithms that `jwks` allows. The claims are parsed here: strictly
(duplicate names, NaN and deep nesting are refused), and with the injected clock.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainmaster.client.contract import ActingIdentity, Client
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Caller, Callers, Latest, SeenClient, always_durable
from trainmaster.rest.jwks import KeySet, KeysUnavailable, VerificationKey
from trainmaster.rest.problems import Problem

log = logging.getLogger(__name__)

AUTHENTICATED = "system:authenticated"
SKEW_SECONDS = 60.0
"""Tolerated difference between clocks."""
_LONGEST_TOKEN = 16 * 1024
_LONGEST_NAME = 253
_MOST_GROUPS = 200
_LATEST = 1 << 53
_RESERVED = ("system:", "trainmaster:")

ActAs = Callable[[ActingIdentity], Client]
"""The API server, acting as a user that the REST API has authenticated."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """Which tokens are accepted, and which claims are used."""

    issuer: str
    audience: str
    user_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"


class Verifier:
    def __init__(self, trusted: Trusted, keys: KeySet, clock: Clock) -> None:
        self._trusted = trusted
        self._keys = keys
        self._clock = clock

    def is_meant(self, token: str) -> bool:
        """Whether it claims to be from our issuer. Nothing is verified yet."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > _LONGEST_TOKEN:
            return False
        claims = _find_object(parts[1])
        return claims is not None and claims.get("iss") == self._trusted.issuer

    async def verify(self, token: str) -> ActingIdentity:
        """Raises Problem 401 with the reason."""
        # The library accepts padding, but then a token would have several forms.
        header = None if "=" in token else _find_object(token.partition(".")[0])
        algorithm = header.get("alg") if header else None
        # `crit` and `b64` change what is signed, and are not needed.
        if header is None or not isinstance(algorithm, str) or "crit" in header or "b64" in header:
            _refuse("its header cannot be read")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            _refuse("its key id is not a text")
        try:
            candidates = await self._keys.find(kid, algorithm)
        except KeysUnavailable:
            # The reason is in the log; callers need not know URLs.
            text = "the keys of the identity provider cannot be had"
            raise Problem(503, "no-keys", text, hint="send it again in a minute; the server's log says why") from None
        if not _is_signed(token, algorithm, candidates):
            _refuse("it is not signed by a key of the issuer, with an algorithm that is for it")
        claims = _find_object(token.split(".")[1])
        if claims is None:
            _refuse("what it says cannot be read")
        self._check(claims)
        return self._read_identity(claims)

    def _check(self, claims: Mapping[str, object]) -> None:
        now = self._clock.unix()
        audience = claims.get("aud")
        if claims.get("iss") != self._trusted.issuer:
            _refuse("it is of another issuer")
        if self._trusted.audience not in (audience if isinstance(audience, list) else [audience]):
            _refuse("it is meant for another audience")
        if _read_moment(claims, "exp", required=True) <= now - SKEW_SECONDS:
            _refuse("it has expired")
        for name in ("nbf", "iat"):
            if _read_moment(claims, name) > now + SKEW_SECONDS:
                _refuse("it is not valid yet: is a clock wrong?")

    def _read_identity(self, claims: Mapping[str, object]) -> ActingIdentity:
        trusted = self._trusted
        # As in Kubernetes, an unverified e-mail address is not accepted.
        if trusted.user_claim == "email" and claims.get("email_verified", True) is not True:
            _refuse("its mail address is not verified")
        user = self._name(claims.get(trusted.user_claim), trusted.user_claim)
        groups = claims.get(trusted.groups_claim) if trusted.groups_claim else None
        listed = [] if groups is None else [groups] if isinstance(groups, str) else groups
        if not isinstance(listed, list) or len(listed) > _MOST_GROUPS:
            _refuse(f"{trusted.groups_claim} is not a list of at most {_MOST_GROUPS} texts")
        named = [self._name(group, trusted.groups_claim) for group in listed]
        return ActingIdentity(user, groups=(*dict.fromkeys(named), AUTHENTICATED))

    def _name(self, value: object, claim: str) -> str:
        if not isinstance(value, str) or not value or len(value) > _LONGEST_NAME or not value.isprintable():
            _refuse(f"{claim} is not a text of 1 to {_LONGEST_NAME} printable characters")
        name = self._trusted.prefix + value
        if name != name.strip() or name.lower().startswith(_RESERVED):
            _refuse(f"{claim} is a name of the system")
        return name


class OidcCallers:
    """`Callers`: tokens of the issuer are verified here, all others by `others`."""

    def __init__(self, others: Callers, verifier: Verifier, act_as: ActAs, latest: Latest = always_durable) -> None:
        self._others = others
        self._verifier = verifier
        self._act_as = act_as
        self._latest = latest

    async def identify(self, token: str) -> Caller:
        if not self._verifier.is_meant(token):
            return await self._others.identify(token)
        identity = await self._verifier.verify(token)
        return Caller(identity, SeenClient(self._act_as(identity), self._latest))


def _refuse(reason: str) -> NoReturn:
    raise Problem(
        401, "unauthorized", f"the token is not good: {reason}", hint="get a new one from your identity provider"
    )


def _is_signed(token: str, algorithm: str, candidates: Sequence[VerificationKey]) -> bool:
    """Whether one of these keys signed it. `candidates` are already restricted to that algorithm."""
    import jwt  # noqa: PLC0415 - most homes know no identity provider

    verifier = jwt.PyJWS()
    for key in candidates:
        try:
            verifier.decode_complete(token, key.public.key, [algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return True
    return False


def _find_object(part: str) -> dict[str, object] | None:
    """The JSON object in a part of a token; None if it is anything else, or ambiguous."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = json.loads(data.decode(), object_pairs_hook=_build_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, binascii.Error):
        return None
    return found if isinstance(found, dict) else None


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError("a name stands twice")
    return built


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _read_moment(claims: Mapping[str, object], name: str, *, required: bool = False) -> float:
    """Seconds since 1970; minus infinity if it is optional and missing."""
    value = claims.get(name)
    if value is None and not required:
        return -math.inf
    # Numbers outside the range of floats are not valid times.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST:
        _refuse(f"{name} is not a number of seconds since 1970")
    return float(value)
