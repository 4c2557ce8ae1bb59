"""Has the processes of a container examined, by a visitor that its shim starts (`trainmaster.shim.evidence`).

The server neither enters the container nor reads its memory: it passes py-spy's program and a pipe, and takes what
comes out of the pipe, up to a number of bytes and for a limited time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import site
import sys
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.kit.scopes import finish
from trainmaster.node.shims.descriptors import FdReader
from trainmaster.node.shims.link import ShimError, ShimGone
from trainmaster.node.shims.supervisor import Supervisor

_SPY = "py-spy"
_SPARE = 4096
"""Bytes above the limit of the visitor, which keeps it."""
_KILL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A container that is examined."""

    pod: Pod
    place: PodPlace
    container: str
    attempt: int
    """Of the container in its Pod."""


class ExaminationError(Exception):
    """It did not work; the text is a sentence."""


def find_spy() -> str:
    """The path of py-spy in the server's own environment; "" if it is not installed."""
    for folder in (f"{sys.prefix}/bin", os.path.dirname(sys.executable), f"{site.getuserbase()}/bin"):
        if os.access(f"{folder}/{_SPY}", os.X_OK):
            return f"{folder}/{_SPY}"
    return ""


class ContainerExaminer:
    def __init__(self, supervisor: Supervisor, spy: str | None = None) -> None:
        """`spy`: the path of py-spy; "" for none, None to look for it."""
        self._supervisor = supervisor
        self._spy = find_spy() if spy is None else spy

    async def examine(self, uid: str, container: str, seconds: float, most_bytes: int) -> Object:
        """`processes` and `collective`. Takes a little longer than `seconds`; can be cancelled at any time. Raises
        ExaminationError."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        output = FdReader(reader)
        given = [writer]
        session = 0
        try:
            with contextlib.suppress(OSError):
                given.append(os.open(self._spy, os.O_RDONLY | os.O_CLOEXEC))
            fields = {"container": container, "seconds": seconds, "bytes": most_bytes}
            answer, _ = await self._supervisor.request(uid, "examine", given, **fields)
            session = int(answer["exec_id"])
            while given:
                os.close(given.pop())
            content = await _read(output, most_bytes + _SPARE)
            session = 0
        except ShimGone:
            raise ExaminationError("it had ended") from None
        except ShimError as error:
            raise ExaminationError(_explain(error)) from None
        finally:
            for one in given:
                os.close(one)
            output.close()
            if session:
                await finish(self._kill(uid, session), limit=_KILL_SECONDS)
        return _decode(content)

    async def _kill(self, uid: str, session: int) -> None:
        with contextlib.suppress(ShimError):
            await self._supervisor.request(uid, "signal", exec_id=session, signal=int(signal.SIGKILL))


async def _read(output: FdReader, most: int) -> bytes:
    content = b""
    while len(content) <= most and (piece := await output.read()):
        content += piece
    return content


def _decode(content: bytes) -> Object:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        text = "the examination was ended before it had a result" if not content else "the result cannot be read"
        raise ExaminationError(text) from None
    if not isinstance(found, dict) or "processes" not in found:
        why = found.get("error") if isinstance(found, dict) else None
        raise ExaminationError(f"its processes cannot be examined: {why or 'no result'}")
    return found


def _explain(error: ShimError) -> str:
    if "does not know the operation" in str(error):
        return "its Pod was started by an earlier version of the server, which could not examine it"
    if "is not running" in str(error):
        return "it had ended"
    return f"its processes cannot be examined: {error}"
