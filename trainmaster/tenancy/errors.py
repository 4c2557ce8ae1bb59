"""Errors of operations on tenants."""

from __future__ import annotations

from typing import Literal


class TenantError(Exception):
    """Says what is not possible, and what to do instead; for people. `kind` is for programs."""

    def __init__(self, text: str, kind: Literal["invalid", "exists", "missing", "refused"] = "refused") -> None:
        super().__init__(text)
        self.kind = kind


def build_taken(name: str) -> TenantError:
    return TenantError(f"the name {name} is taken", "exists")
