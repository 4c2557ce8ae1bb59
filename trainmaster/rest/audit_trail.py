"""What one request wrote, or was refused, for the audit log: lines of the form that the API server's own requests have.

    {"time", "requestId", "user", "groups", "verb", "group", "resource", "namespace", "name", "dryRun", "code",
     "via": "rest", "path"}

One line for every object that a request writes or tries to write (`callers.SeenClient` tells), and one for a request
with a writing method that was refused before it came to any object: there the resource is empty and the path says what
was meant. Neither bodies nor queries nor tokens. On a cluster nothing is written here: requests go on with the caller's
own token, so the cluster's audit log has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import ActingIdentity
from trainmaster.kit.clock import Clock

Write = Callable[[Object], None]
"""Takes one line of the audit log."""

ANONYMOUS = ActingIdentity("system:anonymous", groups=("system:unauthenticated",))
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Questions of the REST API itself, not deeds of the caller.
_REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_LONGEST_PATH = 256


@dataclass(frozen=True, slots=True)
class Deed:
    """One write, tried or done. Without `gvr` the request came to no object."""

    verb: str
    gvr: GVR | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    dry_run: bool = False


class Trail:
    """One request's. `identity` is nobody's until the edge knows who calls."""

    def __init__(self, write: Write | None, clock: Clock, request_id: str, method: str, path: str) -> None:
        self._write = write
        self._clock = clock
        self._request_id = request_id
        self._verb = _VERBS.get(method, "")
        self._path = path[:_LONGEST_PATH]
        self._noted = False
        self.identity = ANONYMOUS
        self.address = ""
        """Of whoever calls, behind proxies too."""

    def note(self, deed: Deed, code: int) -> None:
        """An object was written, or the server behind refused it."""
        if deed.gvr is not None and deed.gvr.group not in _REVIEWS:
            self._noted = True
            self._send(deed, code)

    def end(self, code: int) -> None:
        """The answer of the whole request."""
        if self._verb and code >= 400 and not self._noted:
            self._send(Deed(self._verb), code)

    def _send(self, deed: Deed, code: int) -> None:
        if self._write is None:
            return
        plural = deed.gvr.plural if deed.gvr else ""
        self._write(
            {
                "time": self._clock.now(),
                "requestId": self._request_id,
                "address": self.address,
                "user": self.identity.user,
                "groups": self.identity.groups,
                "verb": deed.verb,
                "group": deed.gvr.group if deed.gvr else "",
                "resource": f"{plural}/{deed.subresource}" if deed.subresource else plural,
                "namespace": deed.namespace,
                "name": deed.name,
                "dryRun": deed.dry_run,
                "code": code,
                "via": "rest",
                "path": self._path,
            }
        )
