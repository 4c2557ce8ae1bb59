"""Maps credentials to identities: bearer tokens, client certificates, service account tokens.

Only the SHA-256 digests of tokens are stored. A token is looked up by its digest in a dictionary, so timing reveals
nothing about the stored ones. As upstream, a certificate's common name is the user and its organizations are the
groups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from trainmaster.api import status
from trainmaster.auth.contract import AUTHENTICATED
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.messages import PeerCertificate

_MAX_TOKEN = 16 * 1024
_REMEMBERED = 1000


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def with_group(identity: ActingIdentity, *groups: str) -> ActingIdentity:
    """Adds the groups that the identity does not have."""
    added = tuple(group for group in groups if group not in identity.groups)
    return ActingIdentity(identity.user, identity.uid, identity.groups + added, identity.extra) if added else identity


class TokenSource(Protocol):
    """One kind of bearer token."""

    def find(self, token: str, audiences: Sequence[str] = ()) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        """The owner, and the audiences the token is valid for (() for any); None if it is of another kind."""
        ...


class StaticTokens:
    """Tokens by digest: the owner's, and those from the token file, which `app` loads."""

    def __init__(self, identities: Mapping[str, ActingIdentity] | None = None) -> None:
        self._by_digest: dict[str, ActingIdentity] = {}
        for key, identity in (identities or {}).items():
            self.add(key, identity)

    def add(self, token_digest: str, identity: ActingIdentity) -> None:
        self._by_digest[token_digest] = with_group(identity, AUTHENTICATED)

    def remove(self, token_digest: str) -> None:
        self._by_digest.pop(token_digest, None)

    def find(self, token: str, audiences: Sequence[str] = ()) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        identity = self._by_digest.get(digest(token))
        return None if identity is None else (identity, ())


def read_certificate(certificate: PeerCertificate) -> ActingIdentity | None:
    """The identity in a verified client certificate, given in the format of `ssl.SSLSocket.getpeercert`."""
    user = ""
    groups: list[str] = []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return ActingIdentity(user, groups=(*groups, AUTHENTICATED)) if user else None


class Credentials:
    """Implements `auth.contract.Authenticator`. As upstream, checks the certificate first, then each token source."""

    def __init__(self, sources: Sequence[TokenSource]) -> None:
        self._sources = list(sources)
        self._remembered: dict[str, tuple[TokenSource, str]] = {}
        """Authorization header to the source that recognized its token. That source is tried first, and always
        validates the token again."""

    def identify(self, authorization: str | None, certificate: PeerCertificate | None) -> ActingIdentity | None:
        if certificate is not None:
            identity = read_certificate(certificate)
            if identity is not None:
                return identity
        if authorization is None:
            return None
        known = self._remembered.get(authorization)
        if known is not None:
            source, token = known
            found = source.find(token)
            if found is not None:
                return found[0]
            del self._remembered[authorization]
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise status.unauthorized()
        for source in self._sources:
            found = source.find(token)
            if found is not None:
                if len(self._remembered) >= _REMEMBERED:
                    self._remembered.clear()
                self._remembered[authorization] = (source, token)
                return found[0]
        raise status.unauthorized()

    def review(self, token: str, audiences: tuple[str, ...]) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        if not token or len(token) > _MAX_TOKEN:
            return None
        for source in self._sources:
            found = source.find(token, audiences)
            if found is not None:
                identity, good_for = found
                return identity, good_for or audiences
        return None
