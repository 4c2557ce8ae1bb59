"""The input and results of admission rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Object


class Lookup(Protocol):
    """Read access to the current objects."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...


@dataclass(slots=True)
class Findings:
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusal: str = ""
    """An error that is not about a field."""

    @property
    def text(self) -> str:
        """The message of the refusal, joined as upstream does; "" if there are no errors."""
        if self.refusal:
            return self.refusal
        texts = [str(error) for error in self.errors]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
