"""Records of acknowledged writes that were lost, stored beside the database. Written by `salvage`.

Does not import SQLite, so that `status` and `doctor` stay fast.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

_NOTES = "damage-*.json"


@dataclass(frozen=True, slots=True)
class Damage:
    """Acknowledged writes that were missing at a start."""

    found: str
    """When, in API time format."""
    kept: int
    """The last revision that was found."""
    missing: int
    """At least this many revisions after it are lost."""
    continues: int
    """The revision from which the store continues."""
    aside: str
    """Path of the damaged write-ahead log; empty if it could not be kept."""

    def describe(self) -> str:
        where = f"; the damaged write-ahead log is kept in {self.aside}" if self.aside else ""
        return (
            f"the store's write-ahead log was damaged: {self.missing} acknowledged writes or more after revision "
            f"{self.kept} are lost{where}. Look over your jobs, or restore a backup with `trainmaster restore`"
        )


def list_damages(directory: Path) -> list[Damage]:
    """All records, oldest first."""
    found = []
    for path in sorted(directory.glob(_NOTES), key=lambda path: (len(path.name), path.name)):
        try:
            found.append(Damage(**json.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue
    return found


def count(directory: Path) -> int:
    return len(list(directory.glob(_NOTES)))


def note(directory: Path, number: int, damage: Damage) -> None:
    path = directory / f"damage-{number}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        json.dump(asdict(damage), file)
