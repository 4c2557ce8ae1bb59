"""Room inside the database for when the disk has none: free pages, which writes use before the file grows.

A file beside the database that is given up in time of need would be taken by whoever fills the disk. Free pages cannot
be. Made in steps of a megabyte, so that commits go on in between; the table that holds them meanwhile is dropped at the
end, and by the next start if a crash comes first.
"""

from __future__ import annotations

import apsw

from trainmaster.store.database import PAGE_BYTES

STEP_BYTES = 1024 * 1024
_TABLE = "spare"


def measure(connection: apsw.Connection) -> int:
    """Bytes of free pages."""
    count: int = connection.pragma("freelist_count")
    return count * PAGE_BYTES


def add_step(connection: apsw.Connection) -> None:
    """Takes a megabyte, of free pages first and then of the disk. apsw.FullError when there is none."""
    with connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (block BLOB)")
        connection.execute(f"INSERT INTO {_TABLE} VALUES (zeroblob(?))", (STEP_BYTES,))


def end(connection: apsw.Connection) -> None:
    """What was taken becomes free pages."""
    with connection:
        connection.execute(f"DROP TABLE IF EXISTS {_TABLE}")
