"""Limits per caller at the API server, in addition to those of every port (`edge.limits`).

Each limit is one field, which `app` fills from the settings. docs/limits.md is generated from these texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.edge.limits import EdgeLimits


@dataclass(frozen=True, slots=True)
class ApiLimits(EdgeLimits):
    """Limits per client and per request (docs/limits.md)."""

    object_bytes: int = 1536 * 1024
    """The stored size of an object, also after a patch; the same limit as etcd's behind a kube-apiserver."""
    object_values: int = 30_000
    """Fields and list items of a body, at any depth, because they determine the cost of a write; the largest CRD of
    Trainer has 6,000. A stored object may have three times as many, because of its managedFields."""
    json_depth: int = 200
    """Nesting depth of a request body, at most 200: the JSON writer supports 254, and lists add a few levels."""
    yaml_bytes: int = 256 * 1024
    """A body in YAML. Parsing it takes a hundred times the CPU of JSON, whose limit is `body_bytes`."""
    watch_seconds: float = 3600.0
    """Maximum duration of a watch without timeoutSeconds. `kubectl get -w` does not reconnect: at least 30 minutes."""
    list_items: int = 100_000
    """Maximum length of a list without `limit`. More is refused; request pages instead."""
