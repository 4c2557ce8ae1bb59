"""What one caller may cost at the API server, besides what holds on every port (`edge.limits`).

Every bound is one field; `app` fills it from the settings. docs/limits.md is made from these texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.edge.limits import EdgeLimits


@dataclass(frozen=True, slots=True)
class ApiLimits(EdgeLimits):
    """What one caller may cost."""

    object_bytes: int = 1536 * 1024
    """An object as it is stored, however it became so large; etcd's limit behind a kube-apiserver."""
    object_values: int = 30_000
    """Fields and list items of a body, at any depth. What a write costs depends on them; the largest CRD of Trainer has
    6,000. A stored object may have three times as many, because it also says who owns which field."""
    json_depth: int = 200
    """Nesting of a request body, at most 200: the JSON writer ends at 254, and lists wrap an object a few levels."""
    yaml_bytes: int = 256 * 1024
    """A body in YAML. Reading it costs a hundred times the CPU of JSON, which may have `body_bytes`."""
    watch_seconds: float = 3600.0
    """The longest watch without timeoutSeconds. `kubectl get -w` does not reconnect, so not below 30 minutes."""
    list_items: int = 100_000
    """A list without `limit` that would hold more is refused; ask for pages."""
