"""Phases of Pods. Used by controllers, the scheduler, the node and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVER = ("Succeeded", "Failed")


def get_phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether its containers have ended for good, so that it uses no resources any more."""
    return (pod.get("status") or {}).get("phase") in OVER
