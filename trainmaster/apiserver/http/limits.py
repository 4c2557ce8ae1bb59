"""What one caller may cost. Every bound of the HTTP layer is one field here; `app` fills it from the settings.

Refusals carry upstream's codes: 413 for bodies, 431 for headers, 429 with Retry-After for watchers and connections,
408 for readers that are too slow to send their request.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.edge.limits import EdgeLimits


@dataclass(frozen=True, slots=True)
class Limits(EdgeLimits):
    object_bytes: int = 1536 * 1024
    """An object as it is stored, however it became so large; etcd's limit behind a kube-apiserver."""
    object_values: int = 30_000
    """Fields and list items of a body, at any depth. What a write costs depends on them; the largest CRD of Trainer has
    6,000. A stored object may have three times as many, because it also says who owns which field."""
    json_depth: int = 200
    """Nesting of a request body, at most 200: the JSON writer ends at 254, and lists wrap an object a few levels."""
    yaml_bytes: int = 256 * 1024
    """A body in YAML. Reading it costs a hundred times the CPU of JSON, which may have `body_bytes`."""
    connections: int = 1024
    """Open connections. The ones above are answered 429 and closed; above twice the number they are dropped."""
    watchers: int = 2000
    """Open watches and followed logs in all."""
    watchers_per_user: int = 1000
    """The same for one user name; members of system:masters are bound by `watchers` only."""
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers (slow-loris)."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body."""
    idle_seconds: float = 180.0
    """A kept-alive connection without a request."""
    write_seconds: float = 30.0
    """A reader that takes nothing of a response or a stream for that long is dropped."""
    stream_buffer_bytes: int = 1024 * 1024
    """What may wait in one stream's write buffer before the server stops taking events for it."""
    watch_seconds: float = 3600.0
    """The longest watch without timeoutSeconds. `kubectl get -w` does not reconnect, so not below 30 minutes."""
    drain_seconds: float = 5.0
    """How long a stopping server waits for requests in progress."""
    list_items: int = 100_000
    """A list without `limit` that would hold more is refused; ask for pages."""
