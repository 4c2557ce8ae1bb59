"""Finds or starts the zygote of a home, and replaces it when it has died or runs other code than ours.

The zygote is started with `posix_spawn` (the control plane never forks), isolated from the environment's Python path,
and detaches itself. A fingerprint of the shim's sources identifies its code: after an upgrade the old zygote is told to
retire, its shims keep running, and new Pods are forked from a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import struct
import sys
from pathlib import Path

from trainmaster.node.shims.warm import WarmZygote
from trainmaster.shim import wire
from trainmaster.shim.processes import kill_quietly
from trainmaster.shim.protocol import ZYGOTE_FOLDER, ZYGOTE_SOCKET
from trainmaster.version import PACKAGE

log = logging.getLogger(__name__)

_START_LIMIT = 30.0
_WARM_LIMIT = 180.0
_MOST_WARM = 4
"""Maximum number of warm zygotes: each holds the memory of its imports."""
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from trainmaster.shim.zygote import main; sys.exit(main(sys.argv[1:]))"
)
_PACKAGE = str(Path(PACKAGE).resolve().parent)


def _measure_own_memory(link: socket.socket) -> int:
    """Bytes that the process at the other end shares with no file; 0 if they cannot be read."""
    pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    try:
        with open(f"/proc/{pid}/smaps_rollup") as stream:
            return next((int(line.split()[1]) << 10 for line in stream if line.startswith("Anonymous:")), 0)
    except OSError:
        return 0


class ZygoteError(Exception):
    """No zygote is available; the text says why."""


class Zygotes:
    def __init__(self, root: Path, level: str, warm_budget: int) -> None:
        self._root = root
        self._level = level
        self._budget = warm_budget
        self._link: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._warm: dict[str, socket.socket | None] = {}
        """Warm zygotes by key, the most recently used last; None: it is starting, or failed."""

    def close(self) -> None:
        """Disconnects from the zygote, which lives on while it has shims."""
        if self._link is not None:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._link.close()
            self._link = None
        # They are in the namespaces of that zygote; the next one may have others.
        for key in tuple(self._warm):
            self._drop_warm(key)

    # Warm zygotes

    def needs_warm(self, warm_zygote: WarmZygote) -> bool:
        return warm_zygote.key not in self._warm

    def is_warm(self, warm_zygote: WarmZygote) -> bool:
        return self._warm.get(warm_zygote.key) is not None

    def send_warm(self, warm_zygote: WarmZygote, message: wire.Message, fd: int) -> bool:
        """False if there is none yet, or it is gone; the Pod is then forked from the ordinary one."""
        link = self._warm.get(warm_zygote.key)
        if link is None:
            return False
        try:
            wire.send(link, message, [fd])
        except OSError:
            self._drop_warm(warm_zygote.key)
            return False
        self._warm[warm_zygote.key] = self._warm.pop(warm_zygote.key)
        return True

    async def start_warm(self, warm_zygote: WarmZygote) -> None:
        """Finds or starts it; takes as long as its imports. Errors are logged, and it is not retried."""
        self._warm[warm_zygote.key] = None
        base = await self.connect()
        try:
            link = await self._get_or_start_warm(warm_zygote)
        except (ZygoteError, OSError, wire.WireError) as error:
            log.warning(
                "no warm start", extra={"action": "node.no_warm", "label": warm_zygote.label, "error": str(error)}
            )
            return
        if self._link is not base:
            link.close()
            self._warm.pop(warm_zygote.key, None)
            return
        self._warm[warm_zygote.key] = link
        asyncio.get_running_loop().add_reader(link.fileno(), self._drop_warm, warm_zygote.key)
        self._keep_within_budget(warm_zygote)

    def _keep_within_budget(self, newest: WarmZygote) -> None:
        """Stops the least recently used ones, but not the newest, unless it exceeds the budget alone."""
        sizes = {key: _measure_own_memory(link) for key, link in self._warm.items() if link is not None}
        while len(sizes) > 1 and (len(sizes) > _MOST_WARM or sum(sizes.values()) > self._budget):
            oldest = next(iter(sizes))
            sizes.pop(oldest)
            self._drop_warm(oldest)
        if (size := sizes[newest.key]) > self._budget:
            text = f"its imports take {size >> 20} MiB, and node.warm_mib allows {self._budget >> 20}"
            log.warning("no warm start", extra={"action": "node.no_warm", "label": newest.label, "error": text})
            self._drop_warm(newest.key)
            self._warm[newest.key] = None  # not tried again

    async def _get_or_start_warm(self, warm_zygote: WarmZygote) -> socket.socket:
        folder = str(self._root / ZYGOTE_FOLDER)
        with wire.connect_in(folder, ZYGOTE_SOCKET) as asking:
            hello = await _ask(asking, {"op": "hello"}) or {}
            name = f"warm-{warm_zygote.key}-{hello.get('token')}.sock"
            try:
                return wire.connect_in(folder, name)
            except (FileNotFoundError, ConnectionRefusedError):
                log.debug("starting a warm zygote", extra={"label": warm_zygote.label})
            reader, writer = os.pipe2(os.O_CLOEXEC)
            try:
                fields = {
                    "prefix": warm_zygote.prefix,
                    "imports": list(warm_zygote.imports),
                    "learned": warm_zygote.learned,
                    "environ": dict(warm_zygote.environ),
                    "varying": list(warm_zygote.varying),
                    "label": warm_zygote.label,
                }
                message = {"op": "warm", "socket": name, "key": warm_zygote.key, "package": _PACKAGE, **fields}
                wire.send(asking, message, [writer])
                os.close(writer)
                writer = -1
                os.set_blocking(reader, False)
                words = await _read_to_end(reader, _WARM_LIMIT)
            except TimeoutError:
                raise ZygoteError(f"imports took longer than {_WARM_LIMIT:.0f} s") from None
            finally:
                os.close(reader)
                if writer >= 0:
                    os.close(writer)
        if b'"ready"' not in words:
            raise ZygoteError(words.decode(errors="replace").strip()[-500:] or "it ended without a word")
        return wire.connect_in(folder, name)

    def _drop_warm(self, key: str) -> None:
        link = self._warm.pop(key, None)
        if link is not None:
            asyncio.get_running_loop().remove_reader(link.fileno())
            link.close()

    async def send(self, message: wire.Message, fd: int) -> None:
        """Sends a request and a descriptor to a running zygote. Raises ZygoteError if none can be started."""
        for _ in range(3):
            link = await self.connect()
            try:
                wire.send(link, message, [fd])
                return
            except BlockingIOError:
                await _wait_writable(link)
            except ConnectionError:
                self.close()
        raise ZygoteError("the zygote dies as soon as it is asked for anything; see its log")

    async def connect(self) -> socket.socket:
        if self._link is not None:
            return self._link
        async with self._turn:
            if self._link is None:
                self._link = await self._get_or_start()
                asyncio.get_running_loop().add_reader(self._link.fileno(), self._note)
            return self._link

    def _note(self) -> None:
        """The zygote sends nothing by itself: something to read means that it has exited."""
        self.close()

    async def _get_or_start(self) -> socket.socket:
        folder = self._root / ZYGOTE_FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        wanted = get_fingerprint()
        for _ in range(5):
            try:
                link = wire.connect_in(str(folder), ZYGOTE_SOCKET)
            except (FileNotFoundError, ConnectionRefusedError):
                await self._start(wanted)
                continue
            try:
                found = await _ask(link, {"op": "hello"})
                if found is not None and found.get("fingerprint") == wanted:
                    return link
                if found is not None:
                    log.info("zygote of another version retired", extra={"action": "node.zygote_retired"})
                    await _ask(link, {"op": "retire"})
                    (folder / ZYGOTE_SOCKET).unlink(missing_ok=True)
            except BaseException:
                link.close()
                raise
            link.close()
        raise ZygoteError(f"no zygote can be started; {folder}/zygote.log may say why")

    async def _start(self, fingerprint: str) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = _spawn([str(self._root), self._level, fingerprint], writer)
            os.close(writer)
            writer = -1
            os.set_blocking(reader, False)
            try:
                words = await _read_to_end(reader)
            finally:
                _wait(pid)
        except TimeoutError:
            raise ZygoteError(f"the zygote did not start within {_START_LIMIT:.0f} s") from None
        except OSError as error:
            raise ZygoteError(f"the zygote cannot be started: {error.strerror}") from error
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if b'"ready"' not in words and b'"held"' not in words:
            raise ZygoteError(f"the zygote did not start: {words.decode(errors='replace').strip()[-500:]}")


def _spawn(arguments: list[str], output: int) -> int:
    """Uses the interpreter itself, not a link or script, and none of the environment's paths."""
    python = os.path.realpath(sys.executable)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    argv = [python, "-I", "-S", "-c", _PROGRAM, _PACKAGE, *arguments]
    return os.posix_spawn(python, argv, os.environ, file_actions=actions)


def _wait(pid: int) -> None:
    """Reaps the process that has handed over to the detached one, or is no longer needed."""
    kill_quietly(pid)
    os.waitpid(pid, 0)


async def _read_to_end(fd: int, limit: float = _START_LIMIT) -> bytes:
    """Everything until the last writer has closed its end, which the zygote does when it is ready."""
    loop = asyncio.get_running_loop()
    words = b""
    async with asyncio.timeout(limit):
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(fd, _settle, ready)
            try:
                await ready
            finally:
                loop.remove_reader(fd)
            piece = os.read(fd, 65536)
            if not piece:
                return words
            words += piece


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _ask(link: socket.socket, message: wire.Message) -> wire.Message | None:
    """None if it is gone or does not answer in time."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(link.fileno(), _settle, ready)
    try:
        wire.send(link, message)
        async with asyncio.timeout(_START_LIMIT):
            await ready
        return wire.receive(link)[0]
    except (OSError, wire.WireError, TimeoutError):
        return None
    finally:
        loop.remove_reader(link.fileno())


async def _wait_writable(link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(link.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(link.fileno())


def get_fingerprint() -> str:
    """Of the code that zygote and shims run."""
    total = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(PACKAGE, "shim").rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
