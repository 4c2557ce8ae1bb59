"""Zip archives as `torch.save` writes them, and files that consist of several, one after the other (`.distcp`).

The standard library's module is not used, because it reads a directory of whatever size into memory, and only the last
one of a file. Nothing is extracted and nothing is unpickled.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.history.checkpoints.opening import Damaged, OpenedCheckpointFile

SIGN = b"PK\x03\x04"
_END_SIGN = b"PK\x05\x06"
_LARGE_END_SIGN = b"PK\x06\x06"
_ENTRY_SIGN = b"PK\x01\x02"
_END = struct.Struct("<4sHHHHIIH")
_LARGE_END = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_BYTES = 20
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_MOST_COMMENT = 0xFFFF
_MOST_DIRECTORY = 64 << 20
_PIECE = 1 << 20
_STORED, _DEFLATED = 0, 8
_CUT = "is cut short: the end of the archive is missing"


@dataclass(frozen=True, slots=True)
class _Archive:
    start: int
    directory: int
    """Where the list of entries begins."""
    directory_bytes: int


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    method: int
    crc: int
    stored: int
    size: int
    local: int
    """Where the entry begins in the file."""


def is_torch(head: bytes) -> bool:
    """Whether a file that begins like this was written by `torch.save`: its first entry is the pickle."""
    if len(head) < _LOCAL.size or not head.startswith(SIGN):
        return False
    length = _LOCAL.unpack_from(head)[9]
    return head[_LOCAL.size : _LOCAL.size + length].endswith(b"/data.pkl")


def check_end(file: OpenedCheckpointFile, *, single: bool) -> None:
    """Finds a file that was cut. `single`: it has to be one archive."""
    archive = _read_end(file, file.size)
    if single and archive.start != 0:
        raise Damaged(_CUT)
    if archive.directory_bytes and file.read(archive.directory, 4) != _ENTRY_SIGN:
        raise Damaged("has no list of entries where its end says")


def check_all(file: OpenedCheckpointFile, *, single: bool) -> None:
    """Compares the checksums of everything in it."""
    check_end(file, single=single)
    end = file.size
    while end > 0:
        archive = _read_end(file, end)
        for entry in _read_entries(file, archive):
            _check_entry(file, entry)
        end = archive.start


def _read_end(file: OpenedCheckpointFile, end: int) -> _Archive:
    """Of the archive that ends there."""
    tail_start = max(0, end - _END.size - _MOST_COMMENT - _LARGE_END.size - _LOCATOR_BYTES)
    quick_start = max(0, end - _END.size - _LARGE_END.size - _LOCATOR_BYTES)
    for start in dict.fromkeys((quick_start, tail_start)):
        tail = file.read(start, end - start)
        place = tail.rfind(_END_SIGN)
        while place >= 0:
            found = _parse_end(tail, place, start)
            if found is not None:
                return found
            place = tail.rfind(_END_SIGN, 0, place)
    raise Damaged(_CUT)


def _parse_end(tail: bytes, place: int, start: int) -> _Archive | None:
    if len(tail) - place < _END.size:
        return None
    _, _, _, _, _, size, offset, comment = _END.unpack_from(tail, place)
    if place + _END.size + comment != len(tail):
        return None
    directory_end = start + place
    large = place - _LOCATOR_BYTES - _LARGE_END.size
    if large >= 0 and tail.startswith(_LARGE_END_SIGN, large):
        size, offset = _LARGE_END.unpack_from(tail, large)[8:]
        directory_end = start + large
    begin = directory_end - size - offset
    return None if begin < 0 else _Archive(begin, directory_end - size, size)


def _read_entries(file: OpenedCheckpointFile, archive: _Archive) -> Iterator[_Entry]:
    if archive.directory_bytes > _MOST_DIRECTORY:
        raise Damaged(f"has a list of entries of more than {_MOST_DIRECTORY >> 20} MiB, which is not read")
    content = file.read(archive.directory, archive.directory_bytes)
    place = 0
    while place < len(content):
        if len(content) - place < _ENTRY.size or not content.startswith(_ENTRY_SIGN, place):
            raise Damaged("has a damaged list of entries")
        fields = _ENTRY.unpack_from(content, place)
        method, crc, stored, size = fields[4], fields[7], fields[8], fields[9]
        names, extras, comment, local = fields[10], fields[11], fields[12], fields[16]
        place += _ENTRY.size
        name = content[place : place + names].decode("utf-8", "backslashreplace")
        size, stored, local = _widen(content[place + names : place + names + extras], size, stored, local)
        yield _Entry(name, method, crc, stored, size, archive.start + local)
        place += names + extras + comment


def _widen(extra: bytes, size: int, stored: int, local: int) -> tuple[int, int, int]:
    """Replaces what does not fit into 32 bits by what the extra field says."""
    values = [size, stored, local]
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        if kind == 1:
            wide = [*struct.iter_unpack("<Q", extra[place + 4 : place + 4 + length // 8 * 8])]
            for index, value in enumerate(values):
                if value == 0xFFFFFFFF and wide:
                    values[index] = wide.pop(0)[0]
        place += 4 + length
    return values[0], values[1], values[2]


def _check_entry(file: OpenedCheckpointFile, entry: _Entry) -> None:
    shown = entry.name[:100]
    if entry.local + _LOCAL.size > file.size:
        raise Damaged(f"has no {shown}, which its list has")
    head = _LOCAL.unpack(file.read(entry.local, _LOCAL.size))
    begin = entry.local + _LOCAL.size + head[9] + head[10]
    if head[0] != SIGN or begin + entry.stored > file.size:
        raise Damaged(f"has no {shown}, which its list has")
    if entry.method not in (_STORED, _DEFLATED):
        return
    crc, size = _sum_up(file, entry, begin)
    # torch.serialization.set_crc32_options(False) leaves the checksum out.
    if size != entry.size or (crc != entry.crc and entry.crc != 0):
        raise Damaged(f"has other bytes in {shown} than were written: the checksum differs")


def _sum_up(file: OpenedCheckpointFile, entry: _Entry, begin: int) -> tuple[int, int]:
    inflate = zlib.decompressobj(-15) if entry.method == _DEFLATED else None
    crc = size = 0
    for place in range(begin, begin + entry.stored, _PIECE):
        piece = file.read(place, min(_PIECE, begin + entry.stored - place))
        for plain in [piece] if inflate is None else _inflate(inflate, piece):
            crc = zlib.crc32(plain, crc)
            size += len(plain)
    return crc, size


def _inflate(inflate: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    """In pieces, because few bytes can become very many."""
    try:
        while piece:
            yield inflate.decompress(piece, _PIECE)
            piece = inflate.unconsumed_tail
    except zlib.error as error:
        raise Damaged(f"cannot be decompressed: {error}") from None
