"""The isolation features that the probe tries, and its finding about one. Used by the probe program and the node."""

from __future__ import annotations

from dataclasses import dataclass

USER_NAMESPACE = "user namespace"
MOUNTS = "mounts"
OVERLAY = "overlay"
PROCESSES = "processes"
NETWORK = "network"
SECCOMP = "seccomp"
GROUPS = "control groups"
KILL = "group kill"


@dataclass(frozen=True, slots=True)
class IsolationFinding:
    name: str
    works: bool
    detail: str
    """What was found, or why it does not work, in a few words."""
