"""The zygote: a small process, one per home, from which every shim is forked.

Forking is cheap only from a small process with one thread. The zygote knows nothing about Pods: a request names a
directory, and the shim does the rest. When idle, a few spare shims are forked ahead, which makes starts faster. The
zygote outlives the control plane, and exits when nobody is connected and none of its shims is alive. When a shim dies
without having closed its Pod, the zygote kills what the Pod left behind.

Started as `python -I -S -c ... <root> <level> <fingerprint>`; prints `ready` on its standard output once it listens.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import socket
import traceback
from typing import NoReturn

from trainmaster.shim import entry, launch, processes, wire
from trainmaster.shim.loop import Loop
from trainmaster.shim.protocol import ENVIRON, ZYGOTE_FOLDER, ZYGOTE_SOCKET, Paths, encode, write_whole
from trainmaster.shim.sandbox import linux
from trainmaster.shim.sandbox.build import clone_flags, describe_inherited, prepare_zygote
from trainmaster.shim.sandbox.cgroups import clean_up
from trainmaster.shim.warm import conditions
from trainmaster.shim.wire import Message

SPARES = 3
"""The number of spare shims."""
_REFILL_SECONDS = 0.02
"""The delay after a request, which has priority."""
_IDLE_SECONDS = 30.0
"""How long a zygote waits for its first connection."""
_LOWEST = 19
"""Of all priorities."""
_WARM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from trainmaster.shim.warm.zygote import main
main = main(sys.argv.pop())
if main is None:
    sys.exit(0)
try:
    main.call(*main.arguments)
except BaseException:
    main.fail()
main.end()
"""
"""The only frame below a warm program's own."""


class Zygote:
    def __init__(self, root: str, level: str, fingerprint: str, lock: int, name: str = ZYGOTE_SOCKET) -> None:
        """`lock`: -1 for a warm zygote, of which there may be several."""
        self._folder = f"{root}/{ZYGOTE_FOLDER}"
        self._fingerprint = fingerprint
        self._lock = lock
        self._loop = Loop()
        self._listener: socket.socket | None = wire.listen_in(self._folder, name)
        self._token = os.urandom(6).hex()
        """Distinguishes this zygote from earlier ones."""
        self._links: dict[int, socket.socket] = {}
        self._shims: dict[int, str] = {}
        self._spares: dict[int, socket.socket] = {}
        self._spare_flags = clone_flags(level)
        self._refill_set = False
        self._is_waiting = True
        self._root = root
        self._loop.add(self._listener.fileno(), self._accept)
        self._loop.watch_children(self._reap)

    def serve(self) -> None:
        gc.collect()
        gc.freeze()
        self._plan_refill()
        self._loop.call_after(_IDLE_SECONDS, self._stop_waiting)
        while self._is_waiting or self._links or self._shims:
            self._loop.run_once()

    def _stop_waiting(self) -> None:
        self._is_waiting = False

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        link = wire.accept(self._listener)
        if link is None:
            return
        self._stop_waiting()
        self._links[link.fileno()] = link
        self._loop.add(link.fileno(), lambda _: self._listen_to(link))

    def _listen_to(self, link: socket.socket) -> None:
        while link.fileno() >= 0:
            try:
                message, fds = wire.receive(link)
            except BlockingIOError:
                return
            except (wire.WireError, OSError):
                message, fds = None, []
            if message is None:
                self._loop.remove(link.fileno())
                del self._links[link.fileno()]
                link.close()
                return
            self._serve_one(link, message, fds)

    def _serve_one(self, link: socket.socket, message: Message, fds: list[int]) -> None:
        op = message.get("op")
        if op == "pod":
            self._start_pod(link, message, fds)
        elif op == "hello":
            who = {"fingerprint": self._fingerprint, "pid": os.getpid(), "token": self._token}
            _answer(link, {**who, "pods": len(self._shims)})
        elif op == "warm":
            self._start_warm(link, message, fds)
        elif op == "retire":
            self._retire()
            _answer(link, {"ok": {}})
        else:
            _answer(link, {"error": f"the zygote does not know the operation {op!r}"})
        wire.close_all(fds)

    def _start_pod(self, link: socket.socket, message: Message, fds: list[int]) -> None:
        """With a descriptor, the shim communicates and reports errors through it; without one, the zygote answers."""
        directory = str(message.get("dir"))
        flags = clone_flags(str(message.get("level")))
        try:
            pid = self._use_spare(flags, message, fds) or _fork(flags)
        except OSError as error:
            text = f"cannot start a shim: {error}"
            if fds:
                with socket.socket(fileno=os.dup(fds[0])) as told:
                    _answer(told, {"event": "failed", "error": text, "kind": type(error).__name__})
            else:
                _answer(link, {"error": text})
            return
        if pid == 0:
            self._become_shim(directory, message, fds)
        self._shims[pid] = os.path.basename(directory)
        self._plan_refill()
        if not fds:
            _answer(link, {"pid": pid, "start_ticks": processes.read_start_ticks(pid)})

    def _become_shim(self, directory: str, message: Message, fds: list[int]) -> None:
        status = 1
        try:
            self._close_zygote()
            entry.detach()
            told = socket.socket(fileno=fds[0]) if fds else None
            if told is not None:
                told.setblocking(False)
            wire.close_all(fds[1:])
            status = entry.run_shim(directory, message.get("start") or [], told)
        except conditions.BecomeProgram:
            raise
        except BaseException:  # noqa: BLE001 - nothing may return into the zygote's own loop
            _exit_with_error()
        os._exit(status)

    def _start_warm(self, link: socket.socket, message: Message, fds: list[int]) -> None:
        """Executes another zygote, which does its imports and reports through the descriptor when it listens."""
        try:
            pid = os.fork()
        except OSError as error:
            _answer(link, {"error": f"cannot start a warm zygote: {error.strerror}"})
            return
        if pid == 0:
            try:
                self._close_zygote()
                _execute_warm(self._root, self._fingerprint, message, fds[0])
            except BaseException:  # noqa: BLE001 - nothing may return into the zygote's own loop
                _exit_with_error()
        _answer(link, {"pid": pid})

    # Spare shims

    def _plan_refill(self) -> None:
        if not self._refill_set and self._listener is not None:
            self._refill_set = True
            self._loop.call_after(_REFILL_SECONDS, self._refill)

    def _refill(self) -> None:
        """Forks one at a time, so that requests do not have to wait for all."""
        self._refill_set = False
        if len(self._spares) >= SPARES or self._listener is None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = _fork(self._spare_flags)
        except OSError:  # process limit reached; the next request reports it
            ours.close()
            theirs.close()
            return
        if pid == 0:
            self._become_spare(ours, theirs)
        theirs.close()
        self._spares[pid] = ours
        if len(self._spares) < SPARES:
            self._refill_set = True
            self._loop.call_after(0.0, self._refill)

    def _become_spare(self, ours: socket.socket, link: socket.socket) -> None:
        """Waits for its Pod. Ends with the zygote."""
        status = 0
        try:
            ours.close()
            self._close_zygote()
            entry.detach()
            message, fds = wire.receive(link)
            link.close()
            if message is not None and fds:
                told = socket.socket(fileno=fds[0])
                told.setblocking(False)
                status = entry.run_shim(str(message["dir"]), message.get("start") or [], told)
        except conditions.BecomeProgram:
            raise
        except BaseException:  # noqa: BLE001 - nothing may return into the zygote's own loop
            _exit_with_error()
        os._exit(status)

    def _use_spare(self, flags: int, message: Message, fds: list[int]) -> int:
        """The pid of a spare shim that has taken over the Pod; 0 if there is none."""
        if not fds or flags != self._spare_flags:
            return 0
        while self._spares:
            pid, link = self._spares.popitem()
            try:
                wire.send(link, message, fds[:1])
            except OSError:
                continue  # it has died
            finally:
                link.close()
            return pid
        return 0

    def _drop_spares(self) -> None:
        for link in self._spares.values():
            link.close()
        self._spares.clear()

    def _close_zygote(self) -> None:
        """Closes what belongs to the zygote, in the shim. The record lock stays with the zygote automatically."""
        self._loop.close()
        self._drop_spares()
        if self._listener is not None:
            self._listener.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._shims.clear()
        self._unlock()

    def _reap(self) -> None:
        fallen: set[str] = set()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            spare = self._spares.pop(pid, None)
            if spare is not None:
                spare.close()
            uid = self._shims.pop(pid, None)
            if uid is not None and status != 0:
                fallen.add(uid)
        fallen -= set(self._shims.values())
        if fallen:
            processes.kill_marked(fallen, _reap_quietly)
            for uid in fallen:
                _clean_up(f"{self._root}/{uid}")

    def _retire(self) -> None:
        """A newer zygote takes over: starts no more Pods, and exits with the last of the old ones."""
        if self._listener is not None:
            self._drop_spares()
            self._loop.remove(self._listener.fileno())
            self._listener.close()
            self._listener = None
            self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _execute_warm(root: str, fingerprint: str, message: Message, output: int) -> NoReturn:
    """In a child: becomes a warm zygote (`warm.zygote`), in the interpreter of its environment."""
    os.setsid()
    os.chdir("/")
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    ground = describe_inherited()
    if int(ground["switch"]) >= 0:
        os.set_inheritable(int(ground["switch"]), True)
    priority = _lower_priority() if message["is_idle"] else None
    options = {"root": root, "fingerprint": fingerprint, "ground": ground, "priority": priority}
    options.update(
        {name: message[name] for name in ("socket", "key", "imports", "learned", "varying", "prefix", "label")}
    )
    python = f"{message['prefix']}/bin/python3"
    env = {"PATH": os.defpath, "HOME": "/", **ENVIRON, **conditions.WHILE_IMPORTING, **message["environ"]}
    os.execve(python, [python, "-c", _WARM, str(message["package"]), json.dumps(options)], env)


def _lower_priority() -> int | None:
    """Returns the priority to go back to. None, and nothing is changed, if this process could not go back."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    except PermissionError:
        return None
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
    return before


def _fork(flags: int) -> int:
    """Forks into new namespaces if there are any; a plain fork works on all kernels."""
    if not flags:
        return os.fork()
    pid, pidfd = linux.clone(flags)
    if pid:
        os.close(pidfd)
    return pid


def _exit_with_error() -> NoReturn:
    """Call in an exception handler."""
    try:
        traceback.print_exc()
    finally:
        os._exit(1)


def _answer(link: socket.socket, message: Message) -> None:
    try:
        wire.send(link, message)
    except OSError:
        return  # the client is gone


def _clean_up(directory: str) -> None:
    try:
        clean_up(Paths(directory))
    except OSError:
        traceback.print_exc()  # removing the Pod's directory tries again


def _reap_quietly() -> None:
    """Does nothing: children are reaped by the loop, and a zombie does not count as running."""


def main(arguments: list[str]) -> int:
    root, level, fingerprint = arguments
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        return 0
    launch.arrange_signals()
    os.closerange(3, 1024)
    folder = f"{root}/{ZYGOTE_FOLDER}"
    os.makedirs(folder, 0o700, exist_ok=True)
    lock = os.open(f"{folder}/zygote.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        report_and_detach(folder, "held")
        return 0
    linux.set_process_name("tm-zygote")
    linux.set_subreaper()
    prepare_zygote(root, level)
    _remove_sockets(folder)
    zygote = Zygote(root, level, fingerprint, lock)
    write_whole(f"{folder}/zygote.json", encode(processes.read_identity()))
    report_and_detach(folder, "ready")
    zygote.serve()
    return 0


def _remove_sockets(folder: str) -> None:
    """Those of warm zygotes that an earlier zygote started: their names contain its token, and nobody asks for them."""
    for name in os.listdir(folder):
        if name.startswith("warm-"):
            os.unlink(f"{folder}/{name}")


def report_and_detach(folder: str, word: str) -> None:
    """Reports to the parent process and closes all of its descriptors."""
    os.write(1, json.dumps(word).encode() + b"\n")
    output = os.open(f"{folder}/zygote.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(silence, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(silence)
    os.close(output)
