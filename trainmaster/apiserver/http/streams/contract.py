"""What the API server needs from the node: programs with streams, and connections inside a Pod's network.

These are protocols, because the API server runs no Pods; the node implements them and `app` connects both. Errors are
`PodStreamError`, whose text is shown to the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError


class PodStreamError(Exception):
    """The request failed; the text is one line."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a client requested."""

    container: str
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool
    command: Sequence[str] = ()
    """Empty for attach."""


class RunningProgram(Protocol):
    """A program whose streams are open: started by exec, or attached to."""

    async def read(self, stream: str) -> bytes:
        """The next output of "stdout" or "stderr"; b"" at its end. Nothing is read ahead."""
        ...

    async def write(self, data: bytes) -> None:
        """Writes to its standard input and waits until it is accepted. Data that nobody reads any more is dropped."""
        ...

    async def close_input(self) -> None:
        """The client sends no more, or is gone."""
        ...

    async def resize(self, columns: int, rows: int) -> None: ...

    async def wait(self) -> int:
        """Its exit code; 0 when an attached container has ended."""
        ...

    async def close(self) -> None:
        """Must always be called; kills a program started by exec that is still running."""
        ...


class Tunnel(Protocol):
    """A TCP connection to a port of a Pod."""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    def end_writing(self) -> None: ...

    def close(self) -> None: ...


class PodStreams(Protocol):
    async def run(self, pod: Object, wanted: StreamOptions) -> RunningProgram: ...

    async def attach(self, pod: Object, wanted: StreamOptions) -> RunningProgram: ...

    async def connect(self, pod: Object, port: int) -> Tunnel: ...


class Wire(Protocol):
    """A connection after an upgrade."""

    @property
    def closing(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def is_ready(self) -> bool:
        """Whether the peer is connected and keeps up."""
        ...

    async def wait_until_writable(self) -> None:
        """Raises ConnectionResetError if the peer is gone."""
        ...

    def hold_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def linger(self) -> None:
        """Closes it after the peer has had time to read."""
        ...


class UpgradedSession(Protocol):
    """Consumes the bytes of a connection after an upgrade."""

    verdict: StatusError | None
    """Why the client may not continue; set before the serving task is cancelled."""

    def feed(self, data: bytes) -> None:
        """Raises FramingError to disconnect the peer."""
        ...

    def probe(self) -> None:
        """Sends something that needs no answer, to notice a disconnected peer while nothing is read."""
        ...

    @property
    def is_held(self) -> bool: ...

    def close(self, code: int, reason: str) -> None:
        """Closes the session after everything written before has been sent."""
        ...


def read_port(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        return None
    port = int(text)
    return port if 0 < port < 65536 else None
