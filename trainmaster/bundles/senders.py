"""Records which namespaces sent which bundles, so that their disk usage counts against the sender's quota.

    <bundles>/../senders/<namespace>/<name of the bundle's directory>

Each is an empty file. A bundle sent by several namespaces counts for each of them; a deleted one for none.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = "senders"


def note(bundles: Path, namespace: str, place: Path) -> None:
    folder = bundles.parent / FOLDER / namespace
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / place.name).touch(mode=0o600)


def list_sent(bundles: Path, namespace: str) -> list[Path]:
    """Directories of bundles that still exist; records of others are deleted."""
    folder = bundles.parent / FOLDER / namespace
    found = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        place = bundles / entry.name
        if place.is_dir():
            found.append(place)
        else:
            entry.unlink(missing_ok=True)
    return found
