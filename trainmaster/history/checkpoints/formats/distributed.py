"""Directories of `torch.distributed.checkpoint`: `.metadata`, and files `__RANK_NUMBER.distcp`.

`.metadata` is a pickle, written last. It is not unpickled: its opcodes are read, as a disassembler does, for the names
and sizes of the files that it mentions.
"""

from __future__ import annotations

import pickletools
import re

from trainmaster.history.checkpoints.opening import Damaged, OpenedCheckpointFile

METADATA = ".metadata"
SHARD = re.compile(r"__\d+_\d+\.distcp")
QUICK_BYTES = 512 << 10
"""A larger `.metadata` is read only when everything is."""
_MOST_METADATA = 64 << 20
_MOST_LEFT = 0xFFFFFFFFFFFF
_PATH, _OFFSET, _LENGTH = "relative_path", "offset", "length"


def read_sizes(file: OpenedCheckpointFile) -> dict[str, int]:
    """How many bytes each file has at least, by name. Raises Damaged."""
    if file.size > _MOST_METADATA:
        raise Damaged(f"has more than {_MOST_METADATA >> 20} MiB, and is not read")
    content = file.read(0, file.size)
    if not content.endswith(b"."):
        raise Damaged("is cut short")
    try:
        return _collect_sizes(content)
    except Exception as error:  # the disassembler raises whatever damaged bytes lead to
        raise Damaged("is damaged") from error


def _collect_sizes(content: bytes) -> dict[str, int]:
    """Follows strings through the memo; a `_StorageInfo` is its three fields with their values, in this order."""
    memo: dict[int, object] = {}
    last: object = None
    field = path = ""
    offset = 0
    sizes: dict[str, int] = {}
    for opcode, argument, _ in pickletools.genops(content):
        name, place = opcode.name, argument if isinstance(argument, int) else 0
        if name == "MEMOIZE":
            memo[len(memo)] = last
            continue
        if name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[place] = last
            continue
        value = memo.get(place) if name in ("BINGET", "LONG_BINGET", "GET") else argument
        last = value
        if isinstance(value, str):
            if field == _PATH:
                path, field = value, ""
            elif value in (_PATH, _OFFSET, _LENGTH):
                field = value
            continue
        if isinstance(value, int) and 0 <= value <= _MOST_LEFT:
            if field == _OFFSET:
                offset = value
            elif field == _LENGTH and SHARD.fullmatch(path):
                sizes[path] = max(sizes.get(path, 0), offset + value)
            field = ""
        else:
            field = ""
    return sizes
