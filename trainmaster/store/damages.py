"""Notes beside the store about acknowledged writes that a start did not find again. Written by `salvage`.

Without SQLite, so that `status` and `doctor`, which only look, stay quick.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

_NOTES = "damage-*.json"


@dataclass(frozen=True, slots=True)
class Damage:
    """Acknowledged writes that a start did not find again."""

    found: str
    """When, as the API writes times."""
    kept: int
    """The last revision that is there."""
    missing: int
    """At least so many revisions after it are lost."""
    continues: int
    """The revision that the store goes on from."""
    aside: str
    """Where the damaged write-ahead log lies; empty when it could not be kept."""

    def describe(self) -> str:
        where = f"; the damaged write-ahead log is kept in {self.aside}" if self.aside else ""
        return (
            f"the store's write-ahead log was damaged: {self.missing} acknowledged writes or more after revision "
            f"{self.kept} are lost{where}. Look over your jobs, or restore a backup with `trainmaster restore`"
        )


def list_damages(directory: Path) -> list[Damage]:
    """All that was ever found there, oldest first."""
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
