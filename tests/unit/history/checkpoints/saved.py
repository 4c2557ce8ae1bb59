"""Checkpoints as training programs save them, made without these programs. `tests/node/test_checkpoint_formats.py` has
the real ones."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path

from trainmaster import checkpoint

UID = "uid-1"


def get_folder(archive: Path, uid: str = UID) -> Path:
    """The checkpoint directory of a job."""
    folder = archive / "results" / uid / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def get_outputs(archive: Path, uid: str = UID) -> Path:
    folder = archive / "results" / uid / "outputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def save_torch(path: Path, content: bytes = b"w" * 300) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", b"\x80\x02}.")
        archive.writestr(f"{path.stem}/data/0", content)
        archive.writestr(f"{path.stem}/version", b"3\n")
    return path


def save_tensors(path: Path, content: bytes = b"t" * 64) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = len(content) // 2
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "U8", "shape": [half], "data_offsets": [0, half]},
            "b": {"dtype": "U8", "shape": [len(content) - half], "data_offsets": [half, len(content)]},
        }
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return path


@dataclass
class StoredTensor:
    """As the entries of `.metadata`, which has a class of torch instead."""

    relative_path: str
    offset: int
    length: int


def save_shards(path: Path, ranks: int = 2) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    entries = []
    for rank in range(ranks):
        name, first = f"__{rank}_0.distcp", path / "first"
        save_torch(path / name, b"1" * 100)
        size = (path / name).stat().st_size
        save_torch(first, b"2" * 200)
        with (path / name).open("ab") as file:
            file.write(first.read_bytes())
        entries += [StoredTensor(name, 0, size), StoredTensor(name, size, first.stat().st_size)]
        first.unlink()
    (path / ".metadata").write_bytes(pickle.dumps({"storage_data": entries}))
    return path


def save_trainer(path: Path, step: int) -> Path:
    save_tensors(path / "model.safetensors")
    save_torch(path / "optimizer.pt")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return path


def commit(path: Path, *, step: int | None = None, at: float | None = None, digest: bool = False) -> Path:
    checkpoint.commit(path, step=step, digest=digest)
    if at is not None:
        set_time(path, at)
    return path


def mark_by_hand(path: Path) -> Path:
    """As a program does that has no module of ours: an empty marker."""
    get_marker(path).touch()
    return path


def get_marker(path: Path) -> Path:
    return path / checkpoint.MARKER if path.is_dir() else path.with_name(path.name + checkpoint.MARKER)


def set_time(path: Path, seconds: float) -> None:
    os.utime(get_marker(path), (seconds, seconds))


def save_file(path: Path, content: bytes = b"weights") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def note_attempt(archive: Path, number: int, began: float, resumed: str = "") -> None:
    note = {"checkpoint": resumed, "seats": {}, "began": began}
    (archive / "results" / UID / f"resume.js.{number}").write_text(json.dumps(note))
