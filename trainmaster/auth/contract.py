"""What authentication and authorization ask of the rest, and what the API server asks of them.

Everything is synchronous and answers from memory: both run on every request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.messages import PeerCertificate

POLICY_KINDS = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"

PolicyChange = Callable[[GVR, str, str, Object | None], None]
"""(collection, namespace, name, the object now or None when it is gone)"""


class PolicySource(Protocol):
    """Where the RBAC objects come from: the store when embedded, a dictionary in tests."""

    def policies(self, gvr: GVR) -> Iterable[Object]: ...

    def subscribe(self, change: PolicyChange) -> Callable[[], None]:
        """Calls back after every change, before the next request is served; returns the function that ends it."""
        ...


class ObjectReader(Protocol):
    """Reads one object, for checks such as "does this token's ServiceAccount still exist"."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...

    def find_uid(self, gvr: GVR, namespace: str, name: str) -> str | None:
        """The uid alone, without parsing the object: asked on every request."""
        ...


class Authenticator(Protocol):
    def identify(self, authorization: str | None, certificate: PeerCertificate | None) -> ActingIdentity | None:
        """Who sends this; None without credentials. StatusError 401 for credentials that are wrong."""
        ...

    def review(self, token: str, audiences: tuple[str, ...]) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        """TokenReview: whose token this is and for which of the audiences it is good, or None."""
        ...


class Authorizer(Protocol):
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        """`resource` is the plural, with "/subresource" where one is asked for."""
        ...

    def allows_path(self, identity: ActingIdentity, verb: str, path: str) -> bool: ...
