"""Packed records: values that nobody is expected to read soon, compressed on disk and in memory.

A note in plain bytes is kept beside each packed value, so that a start can build its indexes without unpacking. The
values of a bucket resemble one another, so they are compressed with a dictionary made of some of them: a finished job
takes a tenth of its size. Dictionaries are stored in the database and never change.

    value in the log    dictionary, size of the value, size of the note, note, compressed value
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from trainmaster.store.contract import StoredRecord

if TYPE_CHECKING:
    import apsw

_HEAD = Struct("<III")
_RAW = -zlib.MAX_WBITS
_LEVEL = 6
_DICTIONARY_BYTES = 16 * 1024
"""Larger ones make unpacking slower."""


class PackingDictionary(NamedTuple):
    number: int
    """Its key in the table `dictionaries`."""
    value: bytes


class PackedRecord(StoredRecord):
    """A record with a packed value. `value` is unpacked each time it is read, which takes about 10 us."""

    __slots__ = ("_dictionary", "_packed")

    is_packed = True

    def __init__(
        self, bucket: str, name: str, revision: int, created: int, packed: bytes, dictionary: PackingDictionary
    ) -> None:
        self.bucket = bucket
        self.name = name
        self.revision = revision
        self.created = created
        self.memo = None
        self._packed = packed
        self._dictionary = dictionary

    @property
    def value(self) -> bytes:  # type: ignore[override]  # read-only here
        return unpack(self._packed, self._dictionary.value)

    @property
    def note(self) -> bytes:
        _, _, size = _HEAD.unpack_from(self._packed)
        return self._packed[_HEAD.size : _HEAD.size + size]

    @property
    def size(self) -> int:
        found: int = _HEAD.unpack_from(self._packed)[1]
        return found


def pack(value: bytes, note: bytes, dictionary: PackingDictionary) -> bytes:
    writer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=dictionary.value)
    return _HEAD.pack(dictionary.number, len(value), len(note)) + note + writer.compress(value) + writer.flush()


def unpack(packed: bytes, dictionary: bytes) -> bytes:
    _, size, note = _HEAD.unpack_from(packed)
    return zlib.decompressobj(_RAW, zdict=dictionary).decompress(packed[_HEAD.size + note :], size)


class Dictionaries:
    """Those of one database."""

    def __init__(self, rows: Iterable[tuple[int, str, bytes]] = ()) -> None:
        self._by_number: dict[int, PackingDictionary] = {}
        self._newest: dict[str, PackingDictionary] = {}
        for number, bucket, value in rows:
            self.add(bucket, PackingDictionary(number, value))

    @classmethod
    def read(cls, connection: apsw.Connection) -> Dictionaries:
        return cls(connection.execute("SELECT number, bucket, value FROM dictionaries ORDER BY number"))

    def __len__(self) -> int:
        return len(self._by_number)

    def get_of(self, packed: bytes) -> PackingDictionary:
        """The one that a value was packed with. KeyError if the database is damaged."""
        return self._by_number[_HEAD.unpack_from(packed)[0]]

    def find(self, bucket: str) -> PackingDictionary | None:
        """The one to pack values of the bucket with."""
        return self._newest.get(bucket)

    def add(self, bucket: str, dictionary: PackingDictionary) -> None:
        self._by_number[dictionary.number] = dictionary
        self._newest[bucket] = dictionary


class Packed(NamedTuple):
    values: list[tuple[StoredRecord, bytes]]
    """Records with their packed values."""
    fresh: dict[str, PackingDictionary]
    """Dictionaries that were made for this, by bucket."""


def pack_all(records: Sequence[tuple[StoredRecord, bytes]], known: Dictionaries) -> Packed:
    """Packs records with their notes."""
    packed = Packed([], {})
    for bucket in dict.fromkeys(record.bucket for record, _ in records):
        chosen = [(record, record.value, note) for record, note in records if record.bucket == bucket]
        dictionary = known.find(bucket)
        if dictionary is None:
            number = len(known) + len(packed.fresh) + 1
            dictionary = packed.fresh[bucket] = _build_dictionary(number, [value for _, value, _ in chosen])
        packed.values.extend((record, pack(value, note, dictionary)) for record, value, note in chosen)
    return packed


def _build_dictionary(number: int, values: Sequence[bytes]) -> PackingDictionary:
    """Made of values from all over the sequence, the last one whole if it fits."""
    chosen = b""
    step = max(1, len(values) // 8)
    for value in values[::-step]:
        if len(chosen) + len(value) > _DICTIONARY_BYTES:
            break
        chosen = value + chosen
    return PackingDictionary(number, chosen or values[-1][:_DICTIONARY_BYTES])
