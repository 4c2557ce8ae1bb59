"""What the ranks of a job were doing at a moment, and how ranks of it failed: one document for each attempt.

    <archive>/results/<job uid>/evidence/<attempt>.json

The node writes it (`node.evidence`); it is removed with the record. Texts in it come from programs: they are shown
without control characters, and only to those who may read the job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainmaster.api.meta import Object
from trainmaster.history.results import RESULTS
from trainmaster.shim.protocol import write_whole

FOLDER = "evidence"
VERSION = 1
MOST_ATTEMPTS = 10
MOST_BYTES = 4 << 20
"""Of one document. Ranks share it, so those of a large gang have less each."""

REQUESTED, DEADLINE, STALLED, FAILED = "Requested", "DeadlineExceeded", "Stalled", "Failed"
REASONS = {
    REQUESTED: "on request",
    DEADLINE: "before it was stopped at its deadline",
    STALLED: "because it stood still",
    FAILED: "when it failed",
}

_OF_ENDS = ("lines", "memory", "end")
"""What is kept of a rank that failed."""

Document = Object


def keep(results: Path, uid: str, document: Document) -> None:
    """Writes the evidence of an attempt, in place of what there is, and drops that of the oldest attempts. Blocks.
    Raises OSError. `results`: the directory of all jobs' results."""
    folder = results / uid / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(os.fspath(folder / f"{int(document['attempt'])}.json"), json.dumps(document).encode())
    for attempt in list_kept(results, uid)[:-MOST_ATTEMPTS]:
        (folder / f"{attempt}.json").unlink(missing_ok=True)


def list_kept(results: Path, uid: str) -> list[int]:
    """The attempts of which there is evidence, in order. Blocks."""
    try:
        names = os.listdir(results / uid / FOLDER)
    except OSError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def find(results: Path, uid: str, attempt: int | None = None) -> Document | None:
    """Of the attempt, else of the last one that has any; None if there is none, or it is damaged. Blocks."""
    if attempt is None:
        attempt = next(reversed(list_kept(results, uid)), None)
    if attempt is None:
        return None
    try:
        found = json.loads((results / uid / FOLDER / f"{attempt}.json").read_bytes())
    except (OSError, ValueError):
        return None
    is_whole = isinstance(found, dict) and found.get("version") == VERSION and isinstance(found.get("ranks"), list)
    return found if is_whole else None


def locate(archive: Path) -> Path:
    """The directory of all jobs' results in an archive."""
    return archive / RESULTS


def merge(known: Document | None, news: Document) -> Document:
    """`news` with what is known of the same attempt. How ranks ended is kept when others are looked at, and what they
    did before is kept when they end."""
    if known is None or known["attempt"] != news["attempt"]:
        return news
    ranks = {_get_seat(rank): rank for rank in known["ranks"]}
    for rank in news["ranks"]:
        seat = _get_seat(rank)
        before = ranks.get(seat)
        if before is None:
            ranks[seat] = rank
        elif news["reason"] != FAILED:
            ranks[seat] = {**rank, "end": rank["end"] or before["end"]}
        elif before["end"] != rank["end"]:  # else it is reported again, by a server that was started meanwhile
            ranks[seat] = {**before, **{name: rank[name] for name in _OF_ENDS}}
    head = known if news["reason"] == FAILED else news
    return {**head, "ranks": [ranks[seat] for seat in sorted(ranks)]}


def _get_seat(rank: Document) -> tuple[str, int, int, str]:
    return str(rank["job"]), int(rank["job_index"]), int(rank["worker"]), str(rank["container"])
