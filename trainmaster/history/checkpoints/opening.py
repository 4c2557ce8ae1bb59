"""Opens files of checkpoints, as long as there is a budget for it.

A list has to be answered soon whatever a tenant has written, so what may be opened and read for one list is limited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.shim.sandbox import beneath


class Damaged(Exception):
    """What is wrong with a file; a sentence without its name."""


class Exhausted(Exception):
    """The budget is used up."""


@dataclass(slots=True)
class ReadingBudget:
    files: int = 4_000
    bytes: int = 128 << 20
    exhausted: bool = False

    def take(self, count: int) -> None:
        """Raises Exhausted."""
        self.bytes -= count
        if self.bytes < 0:
            self.exhausted = True
            raise Exhausted


@dataclass(frozen=True, slots=True)
class OpenedCheckpointFile:
    handle: int
    size: int
    budget: ReadingBudget

    def read(self, offset: int, count: int) -> bytes:
        """Exactly that many bytes. Raises Damaged."""
        self.budget.take(count)
        content = os.pread(self.handle, count, offset)
        while len(content) < count:
            piece = os.pread(self.handle, count - len(content), offset + len(content))
            if not piece:
                raise Damaged("becomes shorter while it is read")
            content += piece
        return content


@contextmanager
def opened(root: Path, path: str, budget: ReadingBudget) -> Iterator[OpenedCheckpointFile]:
    """Raises Damaged if there is no such regular file, and Exhausted."""
    budget.files -= 1
    if budget.files < 0:
        budget.exhausted = True
        raise Exhausted
    try:
        top = beneath.open_directory(os.fspath(root))
        try:
            handle = beneath.open_file(top, path)
        finally:
            os.close(top)
    except FileNotFoundError:
        raise Damaged("is missing") from None
    except OSError as error:
        raise Damaged(f"cannot be read: {os.strerror(error.errno or 0)}") from None
    try:
        yield OpenedCheckpointFile(handle, os.fstat(handle).st_size, budget)
    except OSError as error:
        raise Damaged(f"cannot be read: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(handle)
