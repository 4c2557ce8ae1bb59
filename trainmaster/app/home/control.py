"""The control socket, for operations of the running server that are not part of the Kubernetes API.

One request per connection, one JSON line in each direction. Only the owner can access the home, so the file system is
the access control. `backup` copies the store: its file is open in exclusive mode, so only the server itself can do it.
`warm` reports which interpreters are prepared, `evidence` collects that of a job.

The path of a socket is limited to 107 bytes, and that of a home is not, so both sides access it through an open
directory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trainmaster.store.contract import StoreError

if TYPE_CHECKING:
    from trainmaster.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

NAME = "control.sock"
_MAX_LINE = 64 * 1024

ControlMessage: TypeAlias = Mapping[str, Any]
"""A request or a reply, as parsed JSON."""
Operation = Callable[[ControlMessage], Awaitable[ControlMessage]]


class ControlError(Exception):
    """The server refused the request or failed; the text is the server's."""


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


@asynccontextmanager
async def serve_control(folder: Path, operations: Mapping[str, Operation]) -> AsyncIterator[None]:
    """Serves requests during the block. The caller holds the home's lock, so an existing socket is stale."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await _perform(await reader.readline(), operations)
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client has disconnected or sends no line
        finally:
            writer.close()

    (folder / NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener, _short_path(folder) as path:
        listener.bind(path)
        (folder / NAME).chmod(0o600)
        server = await asyncio.start_unix_server(answer, sock=listener, limit=_MAX_LINE)
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()
            (folder / NAME).unlink(missing_ok=True)


async def _perform(line: bytes, operations: Mapping[str, Operation]) -> ControlMessage:
    try:
        request = json.loads(line)
        operation = operations[request["operation"]]
    except (ValueError, KeyError, TypeError):
        return {"error": "this server does not know that request: is it another version?"}
    try:
        return await operation(request)
    except Exception as error:  # noqa: BLE001 - every error is reported to the client
        return {"error": f"{type(error).__name__}: {error}"}


def ask(folder: Path, request: ControlMessage, *, timeout: float) -> ControlMessage:
    """Sends one request to the server of the home. ControlError if it refuses; OSError if no server listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, _short_path(folder) as path:
        sock.settimeout(timeout)
        sock.connect(path)
        sock.sendall(json.dumps(request).encode() + b"\n")
        with sock.makefile("rb") as stream:
            line = stream.readline()
    reply: ControlMessage = json.loads(line) if line else {"error": "the server ended before it answered"}
    if "error" in reply:
        raise ControlError(str(reply["error"]))
    return reply


async def serve_backup(store: SqliteStore, request: ControlMessage) -> ControlMessage:
    """The operation `backup`."""
    from trainmaster.store import backup as copies  # noqa: PLC0415 - asked for rarely

    try:
        return {"revision": await copies.backup(store, Path(str(request["path"])))}
    except StoreError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"the backup cannot be written: {error.strerror}"}
    except RuntimeError as error:  # the store is closed
        log.info("backup refused", exc_info=error, extra={"action": "app.backup_refused"})
        return {"error": "the server is stopping: try again when it has ended"}
