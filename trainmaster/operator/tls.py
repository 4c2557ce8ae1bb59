"""Gives keys that are in memory to OpenSSL, which reads files only.

The file is a memfd, so a key never reaches a disk and no directory has to be writable: the operator runs with a
read-only root file system. Where /proc is missing it is a private file in /dev/shm, else in the directory for
temporary files, which is deleted before anybody connects.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


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
