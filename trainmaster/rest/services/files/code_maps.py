"""The files of code that is in a ConfigMap: a key for each file, or one packed .tar.gz. Pure."""

from __future__ import annotations

import base64
import binascii
import io
import tarfile
import zlib

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_fields, read_text
from trainmaster.jobs.code_files import CodeMapReference
from trainmaster.jobs.compose.carried import FILE

_MOST_BYTES = 64 << 20
_MOST_FILES = 10_000


def read_code_files(config_map: Fields, reference: CodeMapReference) -> dict[str, bytes]:
    """By path. What cannot be read is left out."""
    packed = _decode(read_text(config_map, "binaryData", FILE))
    if packed:
        return _unpack(packed)
    found = {key: str(text).encode() for key, text in read_fields(config_map, "data").items()}
    found |= {key: _decode(str(text)) for key, text in read_fields(config_map, "binaryData").items()}
    return {reference.paths.get(key, key): content for key, content in sorted(found.items())}


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _unpack(packed: bytes) -> dict[str, bytes]:
    """The plain files. Whoever made it may have made it to be large when unpacked."""
    found: dict[str, bytes] = {}
    try:
        content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, _MOST_BYTES)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    found[member.name.removeprefix("./")] = stream.read()
                if len(found) >= _MOST_FILES:
                    break
    except (zlib.error, tarfile.TarError, OSError, ValueError, EOFError):
        return found
    return found
