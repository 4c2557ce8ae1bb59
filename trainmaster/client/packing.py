"""Objects of one kind as few bytes, for those that a watch cache keeps without anybody reading them.

An object as Python's dicts takes ten times its JSON, and objects of one kind resemble one another: compressed with one
of them as the dictionary, most take a hundredth.
"""

from __future__ import annotations

import zlib

import orjson

from trainmaster.api.meta import Object

_RAW = -zlib.MAX_WBITS
_LEVEL = 1
_DICTIONARY_BYTES = 16 * 1024


class Packer:
    """Of one collection. The first object becomes the dictionary, so nothing is packed before there is one."""

    def __init__(self) -> None:
        self._dictionary = b""

    def pack(self, obj: Object) -> bytes:
        text = orjson.dumps(obj)
        if not self._dictionary:
            self._dictionary = text[-_DICTIONARY_BYTES:]
        writer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=self._dictionary)
        return writer.compress(text) + writer.flush()

    def unpack(self, packed: bytes) -> Object:
        found: Object = orjson.loads(zlib.decompressobj(_RAW, zdict=self._dictionary).decompress(packed))
        return found
