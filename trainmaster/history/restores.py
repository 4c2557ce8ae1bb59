"""A note that the objects of the home were restored from a backup, for the next server.

Jobs that are not in the backup are gone then, and jobs that were deleted since exist again. The keeper brings their
records into line, and removes the note.
"""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from trainmaster.history.record import RecordedDeletion

_FILE = "restored.json"
_BY = "trainmaster restore"
UNSEEN = "removed by a restore while no controller was running: the last status may be missing"


def note_restore(directory: Path, at: str, backup: str) -> None:
    """Called before the objects are replaced. Without an archive there are no records to change."""
    if directory.is_dir():
        path = directory / _FILE
        draft = path.with_suffix(".tmp")
        draft.write_bytes(orjson.dumps({"at": at, "backup": backup}))
        os.replace(draft, path)


def find_restore(directory: Path) -> RecordedDeletion | None:
    """How jobs that are not in the backup were deleted; None if nothing was restored."""
    try:
        note = orjson.loads((directory / _FILE).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return RecordedDeletion(note["at"], _BY, f"not in the backup {note['backup']}")


def forget_restore(directory: Path) -> None:
    (directory / _FILE).unlink(missing_ok=True)
