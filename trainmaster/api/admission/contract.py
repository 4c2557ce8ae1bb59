"""What admission rules are given, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Object


class Lookup(Protocol):
    """The current objects, to read."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...


@dataclass(slots=True)
class Findings:
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusal: str = ""
    """A text that is about no field."""

    @property
    def text(self) -> str:
        """The reason of a refusal as upstream joins it; "" when there is nothing to refuse."""
        if self.refusal:
            return self.refusal
        texts = [str(error) for error in self.errors]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
