"""The audit log of a request: lines in the format of the API server's own requests.

    {"time", "requestId", "user", "groups", "verb", "group", "resource", "namespace", "name", "dryRun", "code",
     "via": "rest", "path"}

One line for every object that a request writes or tries to write (reported by `callers.SeenClient`), and one for a
request with a writing method that was refused before it reached any object: its resource is empty and the path says
what was meant. Bodies, queries and tokens are not logged. On a cluster nothing is written here: requests are forwarded
with the caller's own token, so they are in the cluster's audit log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import ActingIdentity
from trainmaster.kit.clock import Clock

Write = Callable[[Object], None]
"""Writes one line of the audit log."""

ANONYMOUS = ActingIdentity("system:anonymous", groups=("system:unauthenticated",))
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Requests of the REST API itself, not of the caller.
_REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_LONGEST_PATH = 256


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """One attempted write. Without `gvr` the request reached no object."""

    verb: str
    gvr: GVR | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    dry_run: bool = False


class Trail:
    """The audit trail of one request. `identity` is empty until the edge has authenticated the caller."""

    def __init__(self, write: Write | None, clock: Clock, request_id: str, method: str, path: str) -> None:
        self._write = write
        self._clock = clock
        self._request_id = request_id
        self._verb = _VERBS.get(method, "")
        self._path = path[:_LONGEST_PATH]
        self._noted = False
        self.identity = ANONYMOUS
        self.address = ""
        """The client's address, also behind proxies."""

    def note(self, write: AuditedWrite, code: int) -> None:
        """Records that an object was written, or that the server refused the write."""
        if write.gvr is not None and write.gvr.group not in _REVIEWS:
            self._noted = True
            self._send(write, code)

    def end(self, code: int) -> None:
        """Records the answer to the whole request."""
        if self._verb and code >= 400 and not self._noted:
            self._send(AuditedWrite(self._verb), code)

    def _send(self, write: AuditedWrite, code: int) -> None:
        if self._write is None:
            return
        plural = write.gvr.plural if write.gvr else ""
        self._write(
            {
                "time": self._clock.now(),
                "requestId": self._request_id,
                "address": self.address,
                "user": self.identity.user,
                "groups": self.identity.groups,
                "verb": write.verb,
                "group": write.gvr.group if write.gvr else "",
                "resource": f"{plural}/{write.subresource}" if write.subresource else plural,
                "namespace": write.namespace,
                "name": write.name,
                "dryRun": write.dry_run,
                "code": code,
                "via": "rest",
                "path": self._path,
            }
        )
