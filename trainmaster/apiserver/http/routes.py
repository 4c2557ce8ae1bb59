"""Maps a method and a path to a verb and a resource, like upstream's RequestInfo.

Authorization, metrics and handlers all use this value. Routes of paths without a query are cached, because clients
repeat a few paths; the cache is bounded and emptied when full.

Invariant: a path is decoded before it is split, so that an encoded slash cannot hide a segment from authorization.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from trainmaster.api.meta import GVR

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Route:
    """What a request is about. For paths outside /api/V and /apis/G/V only `verb` and `path` are set."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    extra: str = ""
    """Segments after the subresource; no served resource has any."""
    gvr: GVR | None = None
    selected: str = ""
    """The name to which a list, watch or deletecollection is restricted by field selector; authorization by
    resourceNames covers it."""


NO_ROUTE = Route("", "")
"""The route of a request that has not been routed yet."""


def build_route(method: str, path: str) -> Route:
    """The route of a decoded path. `_refine` adds what only the query tells."""
    segments = path.strip("/").split("/")
    if len(segments) < 3 or segments[0] not in ("api", "apis") or "" in segments:
        return Route(method.lower(), path)
    if segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    elif len(segments) < 4:
        return Route(method.lower(), path)
    else:
        group, version, rest = segments[1], segments[2], segments[3:]
    verb = _VERBS.get(method, method.lower())
    if rest[0] == "watch" and len(rest) > 1 and method == "GET":
        verb, rest = "watch", rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        # Upstream authorizes access to a Namespace object as access within that namespace.
        namespace = rest[1]
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if not name:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return Route(
        verb, path, True, group, version, namespace, plural, name, subresource, "/".join(rest[3:]),
        GVR(group, version, plural),
    )  # fmt: skip


class Router:
    """Caches routes by (method, raw path)."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._routes: dict[tuple[str, str], Route] = {}

    def route(self, method: str, raw_path: str) -> Route:
        key = (method, raw_path)
        found = self._routes.get(key)
        if found is None:
            path = unquote(raw_path, errors="strict") if "%" in raw_path else raw_path
            found = build_route(method, path)
            if len(self._routes) >= self._size:
                self._routes.clear()
            self._routes[key] = found
        return found
