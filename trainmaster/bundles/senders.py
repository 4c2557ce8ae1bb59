"""Which namespaces sent which bundles, so that what they take on disk counts against whoever sent them.

    <bundles>/../senders/<namespace>/<name of the bundle's directory>

An empty file each. A bundle that several sent counts for each of them; one that was forgotten counts for nobody.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = "senders"


def note(bundles: Path, namespace: str, place: Path) -> None:
    folder = bundles.parent / FOLDER / namespace
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / place.name).touch(mode=0o600)


def list_sent(bundles: Path, namespace: str) -> list[Path]:
    """Directories of the bundles that are still there; notes about others go."""
    folder = bundles.parent / FOLDER / namespace
    found = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        place = bundles / entry.name
        if place.is_dir():
            found.append(place)
        else:
            entry.unlink(missing_ok=True)
    return found
