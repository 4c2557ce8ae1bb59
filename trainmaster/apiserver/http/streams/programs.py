"""exec and attach: copies data between the channels of a session and a program in a Pod, and reports its exit.

The exit is reported as a Status on the error channel, from which clients take the exit code. When a client disconnects,
the program that it started with exec is killed. Used by `handler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import Object
from trainmaster.apiserver.http.streams.contract import PodStreamError, RunningProgram, StreamOptions
from trainmaster.apiserver.http.streams.sessions import Channel, NumberedChannels, SpdyStreams, StreamSession
from trainmaster.kit.scopes import Scope, finish

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
STREAM_SECONDS = 30.0
"""How long a SPDY client may take to open its streams."""
_NAMES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
_LONGEST_SIZE = 1024
_LARGEST_TERMINAL = 65535
_CLOSE_SECONDS = 10.0

Channels = dict[int, Channel]


@dataclass(frozen=True, slots=True)
class ProgramServer:
    """Serves one session: calls `start` once the client's streams are open."""

    wanted: StreamOptions
    start: Callable[[], Awaitable[RunningProgram]]

    def list_numbers(self) -> list[int]:
        wanted = self.wanted
        asked = [
            (STDIN, wanted.stdin),
            (STDOUT, wanted.stdout),
            (STDERR, wanted.stderr and not wanted.tty),
            (ERROR, True),
            (RESIZE, wanted.tty),
        ]
        return [number for number, is_asked in asked if is_asked]

    async def serve_channels(self, session: StreamSession) -> None:
        assert isinstance(session, NumberedChannels)
        await self._serve(session, session.channels)

    async def serve_streams(self, session: StreamSession) -> None:
        assert isinstance(session, SpdyStreams)
        channels: Channels = {}
        needed = set(self.list_numbers())
        async with asyncio.timeout(STREAM_SECONDS):
            while needed - channels.keys():
                stream = await session.wait_for_stream()
                if stream is None:
                    return
                number = _NAMES.get(stream.headers.get("streamtype", ""))
                if number is None or number in channels:
                    session.reset(stream)
                else:
                    channels[number] = stream
        await self._serve(session, channels)

    async def _serve(self, session: StreamSession, channels: Channels) -> None:
        try:
            program = await self.start()
        except PodStreamError as error:
            await self._tell(session, channels, build_failure(str(error)))
            return
        try:
            code = await self._pump(channels, program)
        except asyncio.CancelledError:
            if session.verdict is not None:
                session.send_last(channels[ERROR], orjson.dumps(session.verdict.to_object()))
            raise
        finally:
            if session.has_lost_peer:
                # Not when this server stops: the program would take half of its input for all of it.
                await finish(program.close_input(), limit=_CLOSE_SECONDS)
            await finish(program.close(), limit=_CLOSE_SECONDS)
        await self._tell(session, channels, build_end(code))

    async def _pump(self, channels: Channels, program: RunningProgram) -> int:
        async with Scope("http.program") as scope:
            outputs = [
                scope.spawn(_copy_out(program, name, channels[number]), name=f"http.{name}")
                for name, number in (("stdout", STDOUT), ("stderr", STDERR))
                if number in channels
            ]
            if STDIN in channels and self.wanted.stdin:
                scope.spawn(_copy_in(channels[STDIN], program), name="http.stdin")
            if RESIZE in channels:
                scope.spawn(_follow_size(channels[RESIZE], program), name="http.resize")
            code = await program.wait()
            if outputs:
                await asyncio.wait(outputs)
        return code

    async def _tell(self, session: StreamSession, channels: Channels, status: Object) -> None:
        await channels[ERROR].write(orjson.dumps(status))
        for channel in channels.values():
            channel.end()
        session.close()


async def _copy_out(program: RunningProgram, name: str, channel: Channel) -> None:
    while data := await program.read(name):
        await channel.write(data)


async def _copy_in(channel: Channel, program: RunningProgram) -> None:
    while data := await channel.read():
        await program.write(data)
    await program.close_input()


async def _follow_size(channel: Channel, program: RunningProgram) -> None:
    """Sizes are consecutive JSON objects, which a client may split arbitrarily."""
    text = b""
    while data := await channel.read():
        text += data
        while b"}" in text:
            found, _, text = text.partition(b"}")
            size = read_size(found + b"}")
            if size is not None:
                await program.resize(*size)
        if len(text) > _LONGEST_SIZE:
            text = b""


def read_size(text: bytes) -> tuple[int, int] | None:
    """Columns and rows; None if invalid, which is ignored."""
    try:
        found = orjson.loads(text)
        columns, rows = found["Width"], found["Height"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not all(type(side) is int and 0 < side <= _LARGEST_TERMINAL for side in (columns, rows)):
        return None
    return columns, rows


def build_end(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def build_failure(text: str) -> Object:
    """The program could not be started."""
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": f"Internal error occurred: {text}",
        "details": {"causes": [{"message": text}]},
        "code": 500,
    }
