"""A file of a job, as it is listed and opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from trainmaster.rest.problems import Problem

Mark = tuple[object, ...]
"""Equal as long as the content is, as far as the file system can tell."""


@dataclass(frozen=True, slots=True)
class JobFile:
    path: str
    """Printable: a name may have bytes that are no text."""
    bytes: int
    open: Callable[[], BinaryIO]
    """Blocks. Raises OSError if the file has gone, or has become something else."""
    mark: Mark | None = None
    modified: str | None = None
    link: str = ""
    """The target of a link, which is listed and never opened."""


@dataclass(frozen=True, slots=True)
class FileList:
    files: Sequence[JobFile] = ()
    """Sorted by path."""
    missing: str = ""
    """Why there can be none, in a sentence; "" if these are all."""
    source: str = ""
    """Of code: `bundle`, `config-map` or `record`."""

    def get(self, path: str) -> JobFile:
        """Raises Problem 404 for whatever is not listed as a file, which includes `..`, absolute paths and links."""
        for file in self.files:
            if file.path == path and not file.link:
                return file
        hint = self.missing or "the list of files has the paths that there are"
        raise Problem(404, "not-found", f"there is no file {path[:200]!r}", hint=hint)


@dataclass(slots=True)
class OpenedFile:
    """Ready to be sent; whoever sends it closes the stream."""

    name: str
    bytes: int
    stream: BinaryIO
    headers: dict[str, str] = field(default_factory=dict)


def to_printable(path: str) -> str:
    """A path of the file system as text; bytes that are none are written as \\xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
