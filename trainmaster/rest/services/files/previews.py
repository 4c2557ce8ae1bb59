"""What of a job's file may be shown in a page: text, PNG and JPEG. Everything else can only be downloaded.

The content decides, not the name; names of pages and drawings are refused even so, because a browser would run them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from trainmaster.rest.problems import Problem
from trainmaster.rest.services.files.contract import JobFile

TEXT_BYTES = 1 << 20
IMAGE_BYTES = 16 << 20
Kind = Literal["text", "png", "jpeg"]

_IMAGES: dict[str, Kind] = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
_NEVER = frozenset({".svg", ".svgz", ".html", ".htm", ".xhtml", ".xht", ".shtml", ".mht", ".mhtml", ".pdf"})
_BINARY = frozenset(
    {
        *(".7z", ".bz2", ".gz", ".tar", ".tgz", ".xz", ".zip", ".zst"),
        *(".bin", ".ckpt", ".gguf", ".h5", ".hdf5", ".onnx", ".pb", ".pt", ".pth", ".safetensors", ".tflite"),
        *(".arrow", ".db", ".feather", ".joblib", ".mat", ".npy", ".npz", ".parquet", ".pickle", ".pkl", ".sqlite"),
        *(".avi", ".mov", ".mp3", ".mp4", ".wav", ".dll", ".o", ".pyc", ".so", ".tfevents"),
    }
)
_SIGNS: tuple[tuple[bytes, Kind], ...] = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"))


@dataclass(frozen=True, slots=True)
class Preview:
    kind: Kind
    content: bytes
    is_whole: bool


def guess_preview(path: str, size: int) -> Kind | None:
    """By the name, for a list. None: only a download."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _NEVER or suffix in _BINARY:
        return None
    kind = _IMAGES.get(suffix, "text")
    return kind if kind == "text" or size <= IMAGE_BYTES else None


def read_preview(file: JobFile) -> Preview:
    """Blocks. Raises Problem 415 for what is shown to nobody, and OSError."""
    if PurePosixPath(file.path).suffix.lower() in _NEVER:
        raise _refuse(file, "could contain a program for browsers")
    with file.open() as stream:
        content = stream.read(TEXT_BYTES)
        kind = next((kind for sign, kind in _SIGNS if content.startswith(sign)), None)
        if kind is not None:
            if file.bytes > IMAGE_BYTES:
                raise _refuse(file, f"is an image of more than {IMAGE_BYTES >> 20} MiB")
            return Preview(kind, content + stream.read(IMAGE_BYTES - len(content)), True)
        is_whole = not stream.read(1)
    if b"\0" in content or not _is_text(content, is_whole):
        raise _refuse(file, "is neither text in UTF-8, nor PNG, nor JPEG")
    return Preview("text", content, is_whole)


def _is_text(content: bytes, is_whole: bool) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        # The cut may be within a character.
        return not is_whole and error.start >= len(content) - 3
    return True


def _refuse(file: JobFile, why: str) -> Problem:
    return Problem(415, "no-preview", f"{file.path[:200]!r} {why}", hint="download it")
