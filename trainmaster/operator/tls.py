"""Gives keys that are in memory to OpenSSL, which reads files only.

The file is a memfd, so a key never reaches a disk and no directory has to be writable: the operator runs with a
read-only root file system. Where /proc is missing it is a private file in /dev/shm, else in the directory for
temporary files, which is deleted before anybody connects.
"""

from __future__ import annotations

import binascii
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_MEMORY = Path("/dev/shm")
_PEM = re.compile("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _LONG_FORM = 0xA0, 0x17, 0x80


def build_context(certificate: str, key: str) -> ssl.SSLContext:
    """For a server, with a certificate and its key as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, certificate, key)
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """New connections get this certificate; established ones are not touched. Raises ssl.SSLError if the key does not
    belong to the certificate."""
    with _open_readable(f"{certificate.rstrip()}\n{key}".encode()) as path:
        context.load_cert_chain(path)


def read_end(certificate: str) -> datetime:
    """When a certificate (PEM; of a chain the first one) expires. Raises ValueError if it is none.

    Read here, because the library for certificates takes 12 MB of memory and `ssl` tells nothing about its own."""
    match = _PEM.search(certificate)
    if match is None:
        raise ValueError("no certificate in PEM")
    try:
        der = binascii.a2b_base64(match[1])
        position = _enter(der, _enter(der, 0).start).start
        if der[position] == _VERSION:
            position = _enter(der, position).end
        for _ in ("serial number", "signature", "issuer"):
            position = _enter(der, position).end
        last = _enter(der, _enter(der, _enter(der, position).start).end)
        text = der[last.start : last.end].decode()
    except IndexError:
        raise ValueError("the certificate is cut off") from None
    form = "%y%m%d%H%M%SZ" if last.tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text, form).replace(tzinfo=UTC)


class _Element(NamedTuple):
    """Of DER: its tag, and where its content is."""

    tag: int
    start: int
    end: int


def _enter(der: bytes, position: int) -> _Element:
    tag, size = der[position], der[position + 1]
    start = position + 2
    if size >= _LONG_FORM:
        count = size - _LONG_FORM
        size = int.from_bytes(der[start : start + count])
        start += count
    return _Element(tag, start, start + size)


@contextmanager
def _open_readable(content: bytes) -> Iterator[str]:
    """The path of a file with this content that nobody else can open."""
    handle = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        path = f"/proc/self/fd/{handle}"
        if os.path.exists(path):
            os.write(handle, content)
            yield path
            return
    finally:
        os.close(handle)
    with tempfile.NamedTemporaryFile(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as file:
        file.write(content)
        file.flush()
        yield file.name
