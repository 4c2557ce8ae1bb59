"""Finds the bundles that the archive still refers to, in records or in the state of existing jobs.

Called before bundles are deleted, in a thread and with its own connection, because reading all records takes a while.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from pathlib import Path

import apsw

from trainmaster.history.archive import FILE, ArchiveError


def list_mentioned(directory: Path, texts: Collection[str]) -> set[str]:
    """Those of the texts that occur anywhere in the archive. Raises ArchiveError if it cannot be read."""
    path = directory / FILE
    if not path.exists() or not texts:
        return set()
    wanted = {text.encode(): text for text in texts}
    found: set[str] = set()
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            for (raw,) in connection.execute("SELECT document FROM jobs"):
                document = zlib.decompress(raw)
                found.update(text for key, text in wanted.items() if key in document)
            for (raw,) in connection.execute("SELECT object FROM open"):
                found.update(text for key, text in wanted.items() if key in raw)
        finally:
            connection.close()
    except (apsw.Error, zlib.error) as error:
        raise ArchiveError(f"cannot read {path}: {error}") from error
    return found
