"""Tokens of ServiceAccounts: issued by TokenRequest, verified without a list of tokens.

A token is a JWT signed with a secret of this installation (HS256) and has upstream's claims: subject, audiences,
expiry, the ServiceAccount's uid and, if bound, a Pod or a Secret with its uid. It is valid if its signature, time and
audience are correct and the objects it names still exist with those uids; deleting any of them revokes it at once.

PyJWT verifies the signature once per token; time, audience and objects are checked on every use. The library is
imported when the first token is verified, because that takes a fifth of the startup time. Signing needs only an HMAC,
so neither the server nor a Pod waits for the import when it starts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from trainmaster.api import fields, status
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_spec
from trainmaster.api.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from trainmaster.auth.contract import AUTHENTICATED, ObjectReader
from trainmaster.client.contract import ActingIdentity
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.ids import Ids

if TYPE_CHECKING:
    from jwt.types import Options

ISSUER = "https://kubernetes.default.svc.cluster.local"
DEFAULT_AUDIENCE = ISSUER
USER_PREFIX = "system:serviceaccount:"
_BOUND = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}
_SHORTEST = 600
_LONGEST = 365 * 24 * 3600
_DEFAULT = 3600
_REMEMBERED = 1000
_OURS = frozenset({DEFAULT_AUDIENCE})
_LONGEST_TOKEN = 16 * 1024
_ALGORITHM = "HS256"
_SIGNATURE_ALONE: Options = {
    "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False, "verify_iss": False,
}  # fmt: skip
"""`find` checks time and audience on every use, with the injected clock."""


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


_HEADER = _encode(orjson.dumps({"alg": _ALGORITHM, "typ": "JWT"}))
_BEGINNING = f"{_HEADER.decode()}."
"""The prefix of all our tokens; others are not parsed."""


def read_user(user: str) -> tuple[str, str] | None:
    """(namespace, name) from a ServiceAccount's user name."""
    if not user.startswith(USER_PREFIX):
        return None
    namespace, _, name = user[len(USER_PREFIX) :].partition(":")
    return (namespace, name) if namespace and name else None


@dataclass(frozen=True, slots=True)
class _Verified:
    identity: ActingIdentity
    begins: float
    ends: float
    audiences: frozenset[str]
    ours: tuple[str, ...]
    """The audiences that mean this server."""
    objects: tuple[tuple[GVR, str, str, str], ...]
    """(collection, namespace, name, uid) of the objects that must still exist."""


class ServiceAccountTokens:
    """Implements `identities.TokenSource`; `request` serves the token subresource."""

    def __init__(self, secret: bytes, reader: ObjectReader, *, clock: Clock, ids: Ids) -> None:
        if len(secret) < 32:
            raise ValueError("the signing secret needs at least 32 bytes")
        self._secret = secret
        self._reader = reader
        self._clock = clock
        self._ids = ids
        self._verified: dict[str, _Verified] = {}
        """Tokens whose signature was verified. Time, audience and objects are checked on every use."""

    # Issuing

    def request(self, namespace: str, name: str, review: Object) -> Object:
        """Answers a TokenRequest: the same object with its status. Raises NotFound without the ServiceAccount."""
        account = self._reader.find(SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            raise status.not_found(SERVICE_ACCOUNTS, name)
        spec = read_spec(review)
        audiences = spec.get("audiences") or [DEFAULT_AUDIENCE]
        seconds = spec.get("expirationSeconds", _DEFAULT)
        self._check(audiences, seconds)
        bound = self._bind(namespace, spec.get("boundObjectRef"))
        now = int(self._clock.now().timestamp())
        kubernetes: Object = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
        }
        kubernetes.update(bound)
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": self._ids.uid(),
            "kubernetes.io": kubernetes,
            "nbf": now,
            "sub": f"{USER_PREFIX}{namespace}:{name}",
        }
        expires = format_time(datetime.fromtimestamp(now + seconds, UTC))
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format_time(self._clock.now())},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": self._sign(claims), "expirationTimestamp": expires},
        }

    def _check(self, audiences: object, seconds: object) -> None:
        errors = []
        if not isinstance(audiences, list) or not all(isinstance(value, str) and value for value in audiences):
            errors.append(fields.invalid("spec.audiences", audiences, "must be a list of non-empty strings"))
        if isinstance(seconds, bool) or not isinstance(seconds, int):
            errors.append(fields.invalid("spec.expirationSeconds", seconds, "must be an integer"))
        elif seconds < _SHORTEST:
            errors.append(
                fields.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            )
        elif seconds > _LONGEST:
            errors.append(
                fields.invalid("spec.expirationSeconds", seconds, "may not specify a duration of over a year")
            )
        if errors:
            raise status.invalid("authentication.k8s.io", "TokenRequest", "", errors)

    def _bind(self, namespace: str, ref: Fields | None) -> Object:
        if not ref:
            return {}
        kind, name, uid = (str(ref.get(key) or "") for key in ("kind", "name", "uid"))
        gvr = _BOUND.get(kind)
        if gvr is None:
            raise status.bad_request(
                "cannot bind token to object of type " + str(ref.get("apiVersion", "")) + "/" + kind
            )
        found = self._reader.find(gvr, "" if gvr == NODES else namespace, name)
        if found is None:
            raise status.not_found(gvr, name)
        actual = found["metadata"]["uid"]
        if uid and uid != actual:
            text = f"the UID in the bound object reference ({uid}) does not match the UID in record."
            raise status.conflict(gvr, name, text)
        return {kind.lower(): {"name": name, "uid": actual}}

    def _sign(self, claims: Object) -> str:
        signed = _HEADER + b"." + _encode(orjson.dumps(claims))
        return (signed + b"." + _encode(hmac.digest(self._secret, signed, hashlib.sha256))).decode()

    # Verifying

    def find(self, token: str, audiences: Sequence[str] = ()) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        known = self._verified.get(token)
        if known is None:
            known = self._read(token)
            if known is None:
                return None
            if len(self._verified) >= _REMEMBERED:
                del self._verified[next(iter(self._verified))]  # the oldest
            self._verified[token] = known
        if not known.begins <= self._clock.unix() < known.ends:
            return None
        good_for = tuple(sorted(known.audiences.intersection(audiences))) if audiences else known.ours
        if not good_for:
            return None
        for gvr, namespace, name, uid in known.objects:
            if self._reader.find_uid(gvr, namespace, name) != uid:
                return None
        return known.identity, good_for

    def _read(self, token: str) -> _Verified | None:
        """The claims of a token that we signed; None for any other."""
        if len(token) > _LONGEST_TOKEN or not token.startswith(_BEGINNING) or not token.isascii() or "=" in token:
            return None
        import jwt  # noqa: PLC0415 - see above

        try:
            claims = jwt.decode(token, self._secret, [_ALGORITHM], _SIGNATURE_ALONE)
            return _read_claims(claims)
        except (jwt.PyJWTError, KeyError, TypeError):
            return None


def _read_claims(claims: Object) -> _Verified:
    """Raises KeyError or TypeError for claims that we would not sign."""
    if not all(type(claims[name]) is int for name in ("nbf", "exp")):
        raise TypeError("times are seconds since 1970")
    kubernetes = claims["kubernetes.io"]
    account, namespace = kubernetes["serviceaccount"], kubernetes["namespace"]
    objects = [(SERVICE_ACCOUNTS, namespace, account["name"], account["uid"])]
    for kind, gvr in _BOUND.items():
        ref = kubernetes.get(kind.lower())
        if ref is not None:
            objects.append((gvr, "" if gvr == NODES else namespace, ref["name"], ref["uid"]))
    extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
    if "pod" in kubernetes:
        extra["authentication.kubernetes.io/pod-name"] = (kubernetes["pod"]["name"],)
        extra["authentication.kubernetes.io/pod-uid"] = (kubernetes["pod"]["uid"],)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    identity = ActingIdentity(claims["sub"], account["uid"], groups, extra)
    # Tolerates a few seconds, in case the wall clock was set back.
    audiences = frozenset(claims["aud"])
    ours = tuple(sorted(audiences & _OURS))
    return _Verified(identity, claims["nbf"] - 5, claims["exp"], audiences, ours, tuple(objects))
