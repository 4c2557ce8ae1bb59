"""Reserves space inside the database for a full disk: free pages, which writes use before the file grows.

A reserve file that is deleted when needed could be taken by whoever fills the disk; free pages cannot. They are created
in steps of a megabyte, so that commits continue in between; the temporary table that holds them is dropped at the end,
or at the next start after a crash.
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
    """Allocates a megabyte, from free pages first and then from the disk. Raises apsw.FullError."""
    with connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (block BLOB)")
        connection.execute(f"INSERT INTO {_TABLE} VALUES (zeroblob(?))", (STEP_BYTES,))


def end(connection: apsw.Connection) -> None:
    """Turns the allocated pages into free pages."""
    with connection:
        connection.execute(f"DROP TABLE IF EXISTS {_TABLE}")
