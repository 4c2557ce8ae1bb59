"""Safetensors: a header in JSON that says where each tensor is, then the tensors."""

from __future__ import annotations

import orjson

from trainmaster.history.checkpoints.opening import Damaged, OpenedCheckpointFile

_MOST_HEADER = 16 << 20
_LENGTH_BYTES = 8


def check(file: OpenedCheckpointFile) -> None:
    """The tensors follow one another without a gap and end where the file ends, so every cut is found."""
    if file.size < _LENGTH_BYTES:
        raise Damaged("is cut short: it has no header")
    length = int.from_bytes(file.read(0, _LENGTH_BYTES), "little")
    if _LENGTH_BYTES + length > file.size:
        raise Damaged("is cut short: its header does not fit into it")
    if length > _MOST_HEADER:
        raise Damaged(f"has a header of more than {_MOST_HEADER >> 20} MiB, which is not read")
    end = 0
    for begin, stop in sorted(_read_offsets(file.read(_LENGTH_BYTES, length))):
        if begin != end:
            raise Damaged("has a damaged header: the places of its tensors do not follow one another")
        end = stop
    expected = _LENGTH_BYTES + length + end
    if file.size < expected:
        raise Damaged(f"is cut short: it has {file.size:,} bytes, and its header says {expected:,}")
    if file.size > expected:
        raise Damaged(f"is too long: it has {file.size:,} bytes, and its header says {expected:,}")


def _read_offsets(header: bytes) -> list[tuple[int, int]]:
    try:
        content = orjson.loads(header)
        tensors = [about for name, about in content.items() if name != "__metadata__"]
        found = [(about["data_offsets"][0], about["data_offsets"][1]) for about in tensors]
    except (ValueError, AttributeError, LookupError, TypeError):
        raise Damaged("has a damaged header") from None
    if not all(isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end for begin, end in found):
        raise Damaged("has a damaged header")
    return found
