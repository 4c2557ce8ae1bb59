"""What a source tells its followers: an event that is encoded already, with the position after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.rest.services.streams import encode_raw


@dataclass(frozen=True, slots=True)
class LiveItem:
    kind: str
    """The name of the event."""
    data: bytes
    """A JSON object, not empty."""
    id: str


def encode_items(items: Sequence[LiveItem]) -> bytes:
    return b"".join(encode_raw(item.kind, item.data, item.id) for item in items)
