"""Authentication, impersonation and authorization of every request.

Anonymous callers may only access health and version, as with upstream's anonymous conditions; everything else without
credentials is 401. All others may have a connection that carries others, whose requests are authorized one by one.
Denials use upstream's messages, because clients and people match on them.
"""

from __future__ import annotations

from urllib.parse import unquote

from trainmaster.api import status
from trainmaster.api.meta import GVR
from trainmaster.api.resources import SERVICE_ACCOUNTS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.messages import ANONYMOUS, ApiRequest
from trainmaster.apiserver.http.routes import Route
from trainmaster.auth.contract import AUTHENTICATED, UNAUTHENTICATED, Authenticator, Authorizer
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge import multiplexing

_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
_SERVICE_ACCOUNT = "system:serviceaccount:"


class Access:
    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.authenticator = authenticator
        self.authorizer = authorizer

    def admit(self, request: ApiRequest) -> None:
        """Sets `request.identity`, or refuses with 401 or 403."""
        headers = request.headers
        identity = self.authenticator.identify(headers.get("authorization"), request.peer)
        route = request.route
        if identity is None:
            if route.path in _PUBLIC or route.path.startswith(("/livez/", "/readyz/", "/healthz/")):
                request.identity = ANONYMOUS
                return
            raise status.unauthorized()
        if "impersonate-user" in headers or "impersonate-group" in headers or "impersonate-uid" in headers:
            request.identity = identity  # even if refused: the audit log names the caller
            request.impersonator, identity = identity.user, self._impersonate(request, identity)
        request.identity = identity
        if route.is_resource:
            resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
            if not self.authorizer.allows(
                identity, route.verb, route.group, resource, route.namespace, route.name or route.selected
            ):
                raise self.denial(identity, route)
        elif route.path != multiplexing.PATH and not self.authorizer.allows_path(identity, route.verb, route.path):
            raise status.forbidden_path(identity.user, route.verb, route.path)

    def denial(self, identity: ActingIdentity, route: Route) -> StatusError:
        return build_denial(
            self.authorizer, identity, route.verb, route.gvr or GVR(route.group, route.version, route.plural),
            route.subresource, route.namespace, route.name,
        )  # fmt: skip

    def _impersonate(self, request: ApiRequest, real: ActingIdentity) -> ActingIdentity:
        user = request.headers.get("impersonate-user", "")
        if not user:
            raise StatusError(400, "BadRequest", "requested impersonation without impersonating a user")
        groups = request.values("impersonate-group")
        uid = request.headers.get("impersonate-uid", "")
        extra: dict[str, tuple[str, ...]] = {}
        for name in request.headers:
            if name.startswith("impersonate-extra-"):
                extra[unquote(name[len("impersonate-extra-") :])] = tuple(request.values(name))
        self._check_impersonation(real, user, groups, uid, extra)
        if user.startswith(_SERVICE_ACCOUNT) and not groups:
            namespace = user[len(_SERVICE_ACCOUNT) :].partition(":")[0]
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        if user == ANONYMOUS.user:
            groups = [*groups, UNAUTHENTICATED] if UNAUTHENTICATED not in groups else groups
        elif AUTHENTICATED not in groups:
            groups = [*groups, AUTHENTICATED]
        return ActingIdentity(user, uid, tuple(groups), extra)

    def _check_impersonation(
        self, real: ActingIdentity, user: str, groups: list[str], uid: str, extra: dict[str, tuple[str, ...]]
    ) -> None:
        checks: list[tuple[str, str, str, str]] = []
        if user.startswith(_SERVICE_ACCOUNT):
            namespace, _, name = user[len(_SERVICE_ACCOUNT) :].partition(":")
            checks.append(("", SERVICE_ACCOUNTS.plural, namespace, name))
        else:
            checks.append(("", "users", "", user))
        checks += [("", "groups", "", group) for group in groups]
        if uid:
            checks.append(("authentication.k8s.io", "uids", "", uid))
        for key, values in extra.items():
            checks += [("authentication.k8s.io", f"userextras/{key}", "", value) for value in values]
        for group, resource, namespace, name in checks:
            if not self.authorizer.allows(real, "impersonate", group, resource, namespace, name):
                plural, _, subresource = resource.partition("/")
                gvr = GVR(group, "v1", plural)
                raise build_denial(self.authorizer, real, "impersonate", gvr, subresource, namespace, name)


def build_denial(
    authorizer: Authorizer, identity: ActingIdentity, verb: str, gvr: GVR, subresource: str, namespace: str, name: str
) -> StatusError:
    resource = f"{gvr.plural}/{subresource}" if subresource else gvr.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    text = f'User "{identity.user}" cannot {verb} resource "{resource}" in API group "{gvr.group}" {where}'
    missing_roles = getattr(authorizer, "missing_roles", None)
    missing = missing_roles(identity, namespace) if missing_roles is not None else []
    if missing:
        joined = missing[0] if len(missing) == 1 else "[" + ", ".join(missing) + "]"
        text += f": RBAC: {joined}"
    return status.forbidden(gvr, name, text)
