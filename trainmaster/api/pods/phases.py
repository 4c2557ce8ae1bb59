"""How far a Pod is, by its phase. One place, because controllers, the scheduler, the node and quotas all ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVER = ("Succeeded", "Failed")


def get_phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Its containers have ended for good; it holds no resources any more."""
    return (pod.get("status") or {}).get("phase") in OVER
