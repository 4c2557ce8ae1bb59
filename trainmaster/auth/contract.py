"""The interfaces between authentication and authorization, the objects they read, and the API server that calls them.

Everything is synchronous and answered from memory, because both run on every request.
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
"""(collection, namespace, name, the current object or None if it was deleted)"""


class PolicySource(Protocol):
    """The source of the RBAC objects: the store in embedded mode, a dictionary in tests."""

    def policies(self, gvr: GVR) -> Iterable[Object]: ...

    def subscribe(self, change: PolicyChange) -> Callable[[], None]:
        """Calls back after every change, before the next request is served. Returns a function that unsubscribes."""
        ...


class ObjectReader(Protocol):
    """Reads one object, for checks such as whether a token's ServiceAccount still exists."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...

    def find_uid(self, gvr: GVR, namespace: str, name: str) -> str | None:
        """Returns only the uid, without parsing the object, because this is called on every request."""
        ...


class Authenticator(Protocol):
    def identify(self, authorization: str | None, certificate: PeerCertificate | None) -> ActingIdentity | None:
        """The sender of a request; None without credentials. Raises StatusError 401 if the credentials are invalid."""
        ...

    def review(self, token: str, audiences: tuple[str, ...]) -> tuple[ActingIdentity, tuple[str, ...]] | None:
        """TokenReview: the owner of the token, and the audiences it is valid for; None if it is invalid."""
        ...


class Authorizer(Protocol):
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        """`resource` is the plural, with "/subresource" if there is one."""
        ...

    def allows_path(self, identity: ActingIdentity, verb: str, path: str) -> bool: ...
