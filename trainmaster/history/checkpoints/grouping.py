"""Tells which files and directories are checkpoints, by rules that need no change of the programs that wrote them.

In the checkpoint directory everything at its top is one, whole or not, and what has a marker is one at any depth. In
the outputs only what has a format of its own is one. A directory that is a checkpoint has no others inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainmaster import checkpoint
from trainmaster.history.checkpoints.formats import distributed
from trainmaster.history.checkpoints.model import CheckpointFile, Format, Place
from trainmaster.history.checkpoints.scanning import Folder

MARKER = checkpoint.MARKER
TRAINER_STATE = "trainer_state.json"
SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".ckpt", ".bin", ".tar")
"""Endings of files that may have been written by `torch.save`; their first bytes decide."""
_INDEX = ".index.json"
_HUGGING_FACE = re.compile(r"checkpoint-\d+")
_DEPTH = 6
"""How deep checkpoints are searched."""

Sniff = Callable[[str], bool]
"""Whether the file at that path was written by `torch.save`."""


@dataclass(frozen=True, slots=True)
class Group:
    path: str
    format: Format
    marker: str = ""
    """The path of the marker; "" without one."""
    marked_at: float = 0.0
    folder: Folder | None = None
    """None: the checkpoint is one file."""
    bytes: int = 0
    modified: float = 0.0
    is_unfinished: bool = False

    def describe(self) -> tuple[CheckpointFile, ...]:
        if self.folder is None:
            return (CheckpointFile("", self.bytes),)
        return tuple(file for file in self.folder.describe() if file.path != MARKER)

    def get_time(self) -> float:
        if self.marker:
            return self.marked_at
        if self.folder is None:
            return self.modified
        return max((status.st_mtime for _, status in self.folder.list_files()), default=0.0)


@dataclass(frozen=True, slots=True)
class Grouping:
    place: Place
    sniff: Sniff

    def find(self, top: Folder) -> Iterator[Group]:
        yield from self._list_files(top, "", 0)
        for name, folder in sorted(top.folders.items()):
            yield from self._list_below(folder, name, 1)

    def _list_below(self, folder: Folder, path: str, depth: int) -> Iterator[Group]:
        """`depth`: 1 for a directory at the top."""
        name = path.rpartition("/")[2]
        is_own = self.place == "checkpoints" and depth == 1
        form = self._find_format(folder, name, is_own or MARKER in folder.files)
        if form is not None and (form != "directory" or MARKER in folder.files):
            yield _build_directory(folder, path, form)
            return
        found: list[Group] = []
        if depth < _DEPTH:
            for inner, below in sorted(folder.folders.items()):
                found += self._list_below(below, f"{path}/{inner}", depth + 1)
        found += self._list_files(folder, f"{path}/", depth)
        if not found and is_own and any(True for _ in folder.list_files()):
            found.append(_build_directory(folder, path, "directory"))
        yield from found

    def _find_format(self, folder: Folder, name: str, is_own: bool) -> Format | None:
        """`is_own`: it is a checkpoint, whatever it holds."""
        files = folder.files
        if _HUGGING_FACE.fullmatch(name) and files:
            return "hugging-face"
        if self.place == "checkpoints" and not is_own:
            return None  # a part of one that is being written
        if distributed.METADATA in files or any(map(distributed.SHARD.fullmatch, files)):
            return "torch-distributed"
        if TRAINER_STATE in files:
            return "hugging-face"
        if any(file.endswith(SAFETENSORS + _INDEX) for file in files):
            return "safetensors"
        if not is_own:
            return None
        if any(file.endswith(SAFETENSORS) for file in files):
            return "safetensors"
        return "directory"

    def _list_files(self, folder: Folder, base: str, depth: int) -> Iterator[Group]:
        is_own = self.place == "checkpoints" and depth == 0
        for name, status in sorted(folder.files.items()):
            if name.startswith(".") or name.endswith(MARKER):
                continue
            marker = folder.files.get(f"{name}{MARKER}")
            if not is_own and marker is None and self.place == "checkpoints":
                continue
            form = self._find_file_format(f"{base}{name}", name, status.st_size, is_own or marker is not None)
            if form is not None:
                yield Group(
                    f"{base}{name}",
                    form,
                    "" if marker is None else f"{base}{name}{MARKER}",
                    0.0 if marker is None else marker.st_mtime,
                    bytes=status.st_size,
                    modified=status.st_mtime,
                    is_unfinished=name.endswith(checkpoint.UNFINISHED),
                )

    def _find_file_format(self, path: str, name: str, size: int, is_own: bool) -> Format | None:
        if name.endswith(SAFETENSORS):
            return "safetensors"
        if is_own or name.endswith(TORCH):
            if size and self.sniff(path):
                return "torch"
            return "file" if is_own else None
        return None


def _build_directory(folder: Folder, path: str, form: Format) -> Group:
    marker = folder.files.get(MARKER)
    return Group(
        path,
        form,
        "" if marker is None else f"{path}/{MARKER}",
        0.0 if marker is None else marker.st_mtime,
        folder,
        is_unfinished=path.endswith(checkpoint.UNFINISHED),
    )
