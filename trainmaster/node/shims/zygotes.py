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
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Known:
    """A warm zygote: it imports, is ready, or has failed and is not tried again."""

    zygote: WarmZygote
    link: socket.socket | None = None
    failure: str = ""
    is_idle: bool = False
    """It may use the CPU only while nothing else needs it."""
    pid: int = 0
    """While it imports."""


@dataclass(frozen=True, slots=True)
class WarmReport:
    """For people."""

    namespace: str
    environment: str
    state: str
    is_ready: bool = False


def _describe(known: _Known, size: int | None) -> str:
    if known.failure:
        return f"not prepared: {known.failure}"
    if size is None:
        return "it is being prepared"
    more = ", and what earlier programs imported" if known.zygote.learned else ""
    return f"prepared ({', '.join(known.zygote.imports)}{more}; {size >> 20} MiB)"


def _build_request(warm_zygote: WarmZygote, name: str, *, is_idle: bool) -> wire.Message:
    return {
        "op": "warm",
        "socket": name,
        "package": _PACKAGE,
        "is_idle": is_idle,
        "key": warm_zygote.key,
        "prefix": warm_zygote.prefix,
        "imports": list(warm_zygote.imports),
        "learned": warm_zygote.learned,
        "environ": dict(warm_zygote.environ),
        "varying": list(warm_zygote.varying),
        "label": warm_zygote.label,
    }


class Zygotes:
    def __init__(self, root: Path, level: str, warm_budget: int) -> None:
        self._root = root
        self._level = level
        self.budget = warm_budget
        self._link: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._warm: dict[str, _Known] = {}
        """By key, the most recently used last."""

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
        known = self._warm.get(warm_zygote.key)
        return known is not None and known.link is not None

    def has_failed(self, warm_zygote: WarmZygote) -> bool:
        known = self._warm.get(warm_zygote.key)
        return known is not None and bool(known.failure)

    def has_room(self) -> bool:
        """Whether the budget probably allows another one."""
        sizes = self._measure()
        return len(sizes) < _MOST_WARM and sum(sizes.values()) + max(sizes.values(), default=0) <= self.budget

    def describe_warm(self) -> list[WarmReport]:
        sizes = self._measure()
        return [
            WarmReport(known.zygote.namespace, known.zygote.label, _describe(known, sizes.get(key)), key in sizes)
            for key, known in self._warm.items()
        ]

    def send_warm(self, warm_zygote: WarmZygote, message: wire.Message, fd: int) -> bool:
        """False if there is none yet, or it is gone; the Pod is then forked from the ordinary one."""
        known = self._warm.get(warm_zygote.key)
        if known is None or known.link is None:
            return False
        try:
            wire.send(known.link, message, [fd])
        except OSError:
            self._drop_warm(warm_zygote.key)
            return False
        self._warm[warm_zygote.key] = self._warm.pop(warm_zygote.key)
        return True

    async def start_warm(self, warm_zygote: WarmZygote, *, is_idle: bool = False) -> None:
        """Finds or starts it; takes as long as its imports. Errors are logged, and it is not retried."""
        known = self._warm[warm_zygote.key] = _Known(warm_zygote, is_idle=is_idle)
        try:
            base = await self.connect()
            link = await self._get_or_start_warm(known)
        except (ZygoteError, OSError, wire.WireError) as error:
            if self._warm.get(warm_zygote.key) is known:
                self._fail(known, str(error))
            return
        if self._link is not base or self._warm.get(warm_zygote.key) is not known:
            link.close()
            if self._warm.get(warm_zygote.key) is known:
                del self._warm[warm_zygote.key]
            return
        known.link = link
        asyncio.get_running_loop().add_reader(link.fileno(), self._drop_warm, warm_zygote.key)
        self._keep_within_budget(known)

    def stop_idle_warm(self) -> None:
        """A Pod needs the CPU now: what is imported only because the machine was idle is stopped, to be tried again."""
        for key, known in tuple(self._warm.items()):
            if known.is_idle and known.link is None and not known.failure:
                del self._warm[key]
                if known.pid:
                    kill_quietly(known.pid)

    def drop_all_warm(self) -> None:
        """Gives their memory back. They end with their last Pods."""
        for key, known in tuple(self._warm.items()):
            if known.link is not None:
                self._drop_warm(key)

    def _fail(self, known: _Known, why: str) -> None:
        label = known.zygote.label
        log.warning("no warm start", extra={"action": "node.no_warm", "label": label, "error": why})
        known.failure = why

    def _measure(self) -> dict[str, int]:
        links = {key: known.link for key, known in self._warm.items()}
        return {key: _measure_own_memory(link) for key, link in links.items() if link is not None}

    def _keep_within_budget(self, newest: _Known) -> None:
        """Stops the least recently used ones, but not the newest, unless it exceeds the budget alone."""
        sizes = self._measure()
        while len(sizes) > 1 and (len(sizes) > _MOST_WARM or sum(sizes.values()) > self.budget):
            oldest = next(iter(sizes))
            sizes.pop(oldest)
            self._drop_warm(oldest)
        key = newest.zygote.key
        if (size := sizes[key]) > self.budget:
            self._drop_warm(key)
            self._warm[key] = _Known(newest.zygote)
            text = f"its imports take {size >> 20} MiB, and node.warm_mib allows {self.budget >> 20}"
            self._fail(self._warm[key], text)

    async def _get_or_start_warm(self, known: _Known) -> socket.socket:
        warm_zygote, folder = known.zygote, str(self._root / ZYGOTE_FOLDER)
        with wire.connect_in(folder, ZYGOTE_SOCKET) as asking:
            hello = await _ask(asking, {"op": "hello"}) or {}
            name = f"warm-{warm_zygote.key}-{hello.get('token')}.sock"
            try:
                return wire.connect_in(folder, name)
            except (FileNotFoundError, ConnectionRefusedError):
                log.debug("starting a warm zygote", extra={"label": warm_zygote.label})
            reader, writer = os.pipe2(os.O_CLOEXEC)
            try:
                message = _build_request(warm_zygote, name, is_idle=known.is_idle)
                answer = await _ask(asking, message, [writer]) or {}
                os.close(writer)
                writer = -1
                os.set_blocking(reader, False)
                known.pid = int(answer.get("pid", 0))
                if self._warm.get(warm_zygote.key) is not known:
                    raise ZygoteError("it was stopped")
                words = await _read_to_end(reader, _WARM_LIMIT)
                known.pid = 0
            except TimeoutError:
                raise ZygoteError(f"imports took longer than {_WARM_LIMIT:.0f} s") from None
            finally:
                os.close(reader)
                if writer >= 0:
                    os.close(writer)
                if known.pid:  # it has not ended: nobody waits for it any more
                    kill_quietly(known.pid)
        if b'"ready"' not in words:
            raise ZygoteError(words.decode(errors="replace").strip()[-500:] or "it ended without a word")
        return wire.connect_in(folder, name)

    def _drop_warm(self, key: str) -> None:
        known = self._warm.pop(key, None)
        if known is not None and known.link is not None:
            asyncio.get_running_loop().remove_reader(known.link.fileno())
            known.link.close()

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


async def _ask(link: socket.socket, message: wire.Message, fds: Sequence[int] = ()) -> wire.Message | None:
    """None if it is gone or does not answer in time."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(link.fileno(), _settle, ready)
    try:
        wire.send(link, message, list(fds))
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
