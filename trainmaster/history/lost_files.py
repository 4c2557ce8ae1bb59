"""What Pods of a TrainJob wrote where nothing is kept, so that its end can say so.

    <archive>/results/<TrainJob uid>/lost/<Pod uid>.json

The node finds it when a Pod has ended (`node.disk.lost_files`). Only the last attempt counts, because its successors
wrote the same again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainmaster.bundles.walking import format_bytes
from trainmaster.history.results import HOME, LOST, RESULTS, WORKDIR, Output

_NAMED = 3


@dataclass(frozen=True, slots=True)
class LostFile:
    path: str
    """As the program wrote it: absolute, below `~`, or relative to its working directory. Printable."""
    bytes: int


@dataclass(frozen=True, slots=True)
class LostFiles:
    """Of one Pod."""

    attempt: int
    rank: int
    files: tuple[LostFile, ...]
    """The largest first, and not all of them if there are many."""
    count: int


def encode_lost(lost: LostFiles) -> bytes:
    return json.dumps(asdict(lost)).encode()


def list_lost(archive: Path, uid: str, outputs: Sequence[Output]) -> list[LostFiles]:
    """Of the Pods of the last attempt, by rank; without files that all ranks wrote and rank 0 has in `outputs`."""
    folder = archive / RESULTS / uid / LOST
    found = []
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            raw = json.loads(path.read_bytes())
            files = tuple(LostFile(**entry) for entry in raw["files"])
            found.append(LostFiles(raw["attempt"], raw["rank"], files, raw["count"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # being removed, or not written completely before a power failure
    last = max((lost.attempt for lost in found), default=0)
    kept = {output.path for output in outputs}
    of_last = (_leave_out(lost, kept) for lost in found if lost.attempt == last)
    return sorted((lost for lost in of_last if lost.count), key=lambda lost: lost.rank)


def _leave_out(lost: LostFiles, kept: Set[str]) -> LostFiles:
    files = tuple(file for file in lost.files if _get_place(file.path) not in kept)
    return replace(lost, files=files, count=lost.count - len(lost.files) + len(files))


def _get_place(path: str) -> str:
    """The path that the file has in the outputs if rank 0 wrote it."""
    return f"{HOME}/{path[2:]}" if path.startswith("~/") else f"{WORKDIR}/{path}"


def describe_lost(lost: Sequence[LostFiles]) -> str:
    """One line that names the largest files and says how to keep them; "" if nothing was lost."""
    named = [(file, entry.rank) for entry in lost for file in entry.files]
    named.sort(key=lambda pair: -pair[0].bytes)
    count = sum(entry.count for entry in lost)
    if not named:
        return ""
    texts = [
        f"{file.path} {f'of rank {rank} ' if rank else ''}({format_bytes(file.bytes)})" for file, rank in named[:_NAMED]
    ]
    left = count - len(texts)
    more = f" and {left:,} more file{'s' * (left != 1)}" if left else ""
    return f"not kept: {', '.join(texts)}{more}; write to $TRAINMASTER_OUTPUT_DIR what you want to keep"
