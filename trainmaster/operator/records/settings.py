"""What an operator is told about its records port."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.operator.records.installation import PORT
from trainmaster.operator.webhooks.rotation import RotationTimes


@dataclass(frozen=True, slots=True)
class RecordsSettings:
    namespace: str
    """Of the Secret with the certificate."""
    names: tuple[str, ...]
    """The names by which API servers reach this operator."""
    host: str = ""
    """The address to listen on; "" is all."""
    port: int = PORT
    directory: Path | None = None
    """With tls.crt and tls.key, kept current by somebody else; None: our own certificate, in a Secret."""
    rotation: RotationTimes = field(default_factory=RotationTimes)
