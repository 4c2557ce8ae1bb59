"""The shim of one Pod: starts and reaps its containers and answers the control plane.

Forked by the zygote, single-threaded and independent of the control plane: any number of clients can connect and
subscribe to events, and everything is on disk before it is reported. When a container's main process has exited, all
other processes of the container are killed; when the shim is told to close, all processes of the Pod are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

from trainmaster.shim import launch, processes, sessions, usage, wire
from trainmaster.shim.attempt import AlreadyBegun, Attempt
from trainmaster.shim.evidence.examining import VisitRequest
from trainmaster.shim.evidence.visiting import fork_visitor
from trainmaster.shim.loop import WRITE, Loop, Timer, get_monotonic
from trainmaster.shim.processes import kill_quietly
from trainmaster.shim.protocol import ContainerSpec, Paths, decode, describe, read_whole
from trainmaster.shim.sandbox.build import Sandbox, SandboxError
from trainmaster.shim.sessions import GangExec, SessionError, ShimSession
from trainmaster.shim.wire import Message

_RECHECK_SECONDS = 0.05
"""Interval for checking processes that do not die immediately; the kernel sends no notification."""
_LONGEST_PAUSE = 1.0
_WATCH_SECONDS = 1.0
_WATCH_COST = 10.0
"""Measuring usage takes at most a tenth of a processor."""
_MOST_SESSIONS = 64
"""Each session holds descriptors of the shim and of the server."""
_LONGEST_VISIT = 5.0
_REFUSALS = (SessionError, SandboxError, AlreadyBegun, OSError, KeyError, TypeError, ValueError)

Answer = tuple[Message, list[int]]


class Peer:
    """A connection from the control plane."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.subscribed = False


class SandboxedPod:
    def __init__(self, loop: Loop, paths: Paths, sandbox: Sandbox, listener: socket.socket) -> None:
        self.closed = False
        self._loop = loop
        self._paths = paths
        self._sandbox = sandbox
        self._listener = listener
        self._machine_pid = int(os.readlink("/proc/self"))
        self._attempts: dict[str, Attempt] = {}
        self._sessions: dict[int, ShimSession] = {}
        self._peers: dict[int, Peer] = {}
        self._last_session = 0
        self._closing: list[tuple[Peer, int]] = []
        self._is_closing = False
        self._look_set = False
        self._watch_set = False
        self._thaw: Timer | None = None
        self._gang: GangExec | None = None
        self._ops: dict[str, Callable[[Peer, Message, list[int]], Answer | None]] = {
            "subscribe": self._op_subscribe,
            "start": self._op_start,
            "signal": self._op_signal,
            "kill": self._op_kill,
            "pause": self._op_pause,
            "exec": self._op_exec,
            "examine": self._op_examine,
            "attach": self._op_attach,
            "close_input": self._op_close_input,
            "resize": self._op_resize,
            "connect": self._op_connect,
            "listen": self._op_listen,
            "stats": self._op_stats,
            "close": self._op_close,
        }
        loop.add(listener.fileno(), self._accept)
        loop.watch_children(self._reap)
        self._relay = 0
        self._watch_listeners()

    def run_once(self) -> None:
        self._loop.run_once()

    def serve_gang(self, path: str) -> None:
        """Without it, the launcher uses the API server."""
        try:
            self._gang = GangExec(self._loop, path, self._begin_session)
        except OSError as error:
            launch.write_log(f"cannot listen for the launcher: {error}")

    # Talking

    def _accept(self, _: int) -> None:
        link = wire.accept(self._listener)
        if link is not None:
            self.add_peer(link)

    def add_peer(self, link: socket.socket, *, subscribed: bool = False) -> None:
        peer = Peer(link)
        peer.subscribed = subscribed
        self._peers[link.fileno()] = peer
        self._loop.add(link.fileno(), lambda _: self._listen_to(peer))

    def _drop(self, peer: Peer) -> None:
        fd = peer.link.fileno()
        if fd >= 0:
            self._loop.remove(fd)
            self._peers.pop(fd, None)
            peer.link.close()
            for session in self._sessions.values():
                if session.owner is peer:
                    session.kill()

    def _listen_to(self, peer: Peer) -> None:
        while peer.link.fileno() >= 0:
            try:
                message, fds = wire.receive(peer.link)
            except BlockingIOError:
                return
            except (wire.WireError, OSError) as error:
                launch.write_log(f"connection dropped: {error}")
                self._drop(peer)
                return
            if message is None:
                self._drop(peer)
                return
            self._serve(peer, message, fds)

    def _serve(self, peer: Peer, message: Message, fds: list[int]) -> None:
        try:
            op = self._ops.get(str(message.get("op")))
            if op is None:
                raise SessionError(f"this shim does not know the operation {message.get('op')!r}")
            answer = op(peer, message, fds)
        except _REFUSALS as error:
            self._reply(peer, message.get("id"), {"error": _describe(error), "kind": type(error).__name__})
            return
        finally:
            wire.close_all(fds)
        if answer is not None:
            content, out = answer
            self._reply(peer, message.get("id"), {"ok": content}, out)
            wire.close_all(out)

    def _reply(self, peer: Peer, number: object, content: Message, fds: list[int] | None = None) -> None:
        self._send(peer, {"id": number, **content}, fds or [])

    def _send(self, peer: Peer, message: Message, fds: list[int] | None = None) -> None:
        """Clients that do not read are disconnected; they can reconnect and read the directory."""
        if peer.link.fileno() < 0:
            return
        try:
            wire.send(peer.link, message, fds or [])
        except (OSError, wire.WireError) as error:
            launch.write_log(f"connection dropped: {error}")
            self._drop(peer)

    def tell(self, message: Message) -> None:
        for peer in tuple(self._peers.values()):
            if peer.subscribed:
                self._send(peer, message)

    # Outgoing connections

    def _watch_listeners(self) -> None:
        """The relay is a separate process that is started on demand, because most Pods never need it."""
        for fd in self._sandbox.listeners:
            self._loop.add(fd, self._start_relay)

    def _start_relay(self, _: int) -> None:
        for fd in self._sandbox.listeners:
            self._loop.remove(fd)
        self._relay = self._sandbox.serve()

    # Containers

    def start(self, container: str, number: int) -> None:
        """Raises AlreadyBegun, or OSError if there is no such spec."""
        if self._is_closing:
            raise SessionError("the Pod is being closed")
        current = self._attempts.get(container)
        if current is not None and current.exited is None:
            raise AlreadyBegun(f"attempt {current.spec.attempt} of {container} has not ended")
        spec = decode(ContainerSpec, read_whole(self._paths.spec(container, number)))
        attempt = Attempt(self._loop, self._paths, self._sandbox, spec, self._note_started, self._note_exited)
        attempt.claim()
        self._attempts[container] = attempt
        attempt.begin()
        if self._sandbox.needs_watch(spec.limits) and not self._watch_set:
            # Not immediately: until exec, the program appears to use the memory that it shares with the shim.
            self._watch_set = True
            self._loop.call_after(_WATCH_SECONDS, self._watch_limits)

    def _watch_limits(self) -> None:
        """Enforces memory and pid limits where no control group does: checks once a second while a limited container
        runs, and less often if a check is expensive because of many processes or open files."""
        began = get_monotonic()
        running = {
            attempt.pid: (attempt.spec.name, attempt.spec.limits.memory)
            for attempt in self._attempts.values()
            if attempt.running
        }
        for name, what in self._sandbox.list_over_limit(running).items():
            self._attempts[name].note_over_limit(what)
        self._watch_set = bool(running)
        if running:
            cost = get_monotonic() - began
            self._loop.call_after(max(_WATCH_SECONDS, cost * _WATCH_COST), self._watch_limits)

    def _note_started(self, attempt: Attempt) -> None:
        assert attempt.started is not None
        self._tell_about("started", attempt, describe(attempt.started))

    def _note_exited(self, attempt: Attempt) -> None:
        assert attempt.exited is not None
        self._tell_about("exited", attempt, describe(attempt.exited))
        self._finish_closing()

    def _tell_about(self, event: str, attempt: Attempt, content: Message) -> None:
        where = {"container": attempt.spec.name, "attempt": attempt.spec.attempt}
        self.tell({"event": event, **where, event: content})

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            for attempt in self._attempts.values():
                if attempt.pid == pid and attempt.running:
                    attempt.note_death(status, usage.ru_maxrss << 10)
            if pid == self._relay and not self.closed:
                self._watch_listeners()
            session = self._sessions.pop(pid, None)
            if session is not None:
                self._end_session(session, status)
        self._clear_trees()

    def _clear_trees(self) -> None:
        """Kills processes that exited containers left behind, until there are none."""
        again = False
        for attempt in tuple(self._attempts.values()):
            if attempt.dying:
                if self._kill_rest(attempt):
                    again = True
                else:
                    attempt.note_tree_gone()
        if again and not self._look_set:
            self._look_set = True
            self._loop.call_after(_RECHECK_SECONDS, self._schedule_recheck)

    def _schedule_recheck(self) -> None:
        self._look_set = False
        self._reap()

    def _kill_rest(self, attempt: Attempt) -> bool:
        """True if there was something to kill, which may not be dead yet."""
        others = [other for other in self._attempts.values() if other is not attempt and other.exited is None]
        if not others and self._sandbox.owns_pids:
            return kill_quietly(-1)
        self._sandbox.kill(attempt.spec.name)
        members = self._list_members(attempt, alone=not others)
        for pid in members:
            inner = processes.read_inner_pid(pid) if self._sandbox.owns_pids else pid
            if inner > 0:
                kill_quietly(inner)
        return bool(members)

    def _list_members(self, attempt: Attempt, *, alone: bool) -> list[int]:
        """Machine pids of the container's processes except its main one."""
        found = processes.list_descendants(self._machine_pid)
        if alone:
            return [pid for pid, _ in found]
        members: set[int] = set()
        for pid, parent in found:
            token = processes.find_token(pid)
            known = token == attempt.token or parent in members
            if known or (not token and processes.read_session(pid) == attempt.session):
                members.add(pid)
        return list(members)

    # Operations

    def _op_subscribe(self, peer: Peer, _request: Message, _fds: list[int]) -> Answer:
        peer.subscribed = True
        return {}, []

    def _op_start(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        self.start(str(request["container"]), int(request["attempt"]))
        return {}, []

    def _op_signal(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        """Signals a container or, with `exec_id`, a program started in it, and its process group."""
        if "exec_id" in request:
            found = [item for item in self._sessions.values() if item.number == request["exec_id"]]
            for session in found:
                session.kill(int(request["signal"]))
            return {"running": bool(found)}, []
        attempt = self._attempts.get(str(request["container"]))
        if attempt is not None:
            attempt.signal(int(request["signal"]))
        return {"running": attempt is not None and attempt.running}, []

    def _op_kill(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        attempt = self._attempts.get(str(request["container"]))
        if attempt is not None:
            attempt.signal(signal.SIGKILL)
            self._sandbox.kill(attempt.spec.name)
        return {"running": attempt is not None and attempt.running}, []

    def _op_pause(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        """Freezes the whole Pod for a number of seconds. It resumes by itself, even if the client is gone."""
        if not self._is_closing and self._sandbox.freeze(frozen=True):
            if self._thaw is not None:
                self._thaw.cancel()
            self._thaw = self._loop.call_after(min(float(request["seconds"]), _LONGEST_PAUSE), self._end_pause)
        return {}, []

    def _end_pause(self) -> None:
        if self._thaw is not None:
            self._thaw.cancel()
            self._thaw = None
            self._sandbox.freeze(frozen=False)

    def _get_running(self, request: Message) -> Attempt:
        attempt = self._attempts.get(str(request["container"]))
        if attempt is None or not attempt.running:
            raise SessionError(f"container {request['container']} is not running")
        return attempt

    def _op_exec(self, peer: Peer, request: Message, fds: list[int]) -> None:
        def on_start(session: ShimSession, error: str) -> None:
            if error:
                self._reply(peer, request.get("id"), {"error": error, "kind": "ExecError"})
            else:
                self._reply(peer, request.get("id"), {"ok": {"exec_id": session.number, "pid": session.pid}})

        session = self._begin_session(request, fds, on_start)
        session.owner = peer if request.get("bound") else None

    def _begin_session(
        self,
        request: Message,
        fds: list[int],
        on_start: Callable[[ShimSession, str], None],
        on_exit: Callable[[int], None] | None = None,
    ) -> ShimSession:
        attempt = self._get_running(request)
        tty = bool(request.get("tty"))
        if len(fds) != (1 if tty else 3):
            raise SessionError("exec needs three descriptors, or one terminal")
        if len(self._sessions) >= _MOST_SESSIONS:
            raise SessionError(f"{_MOST_SESSIONS} programs were started in this Pod by exec and have not ended")
        spec = sessions.build_exec(attempt, request)
        self._last_session += 1
        terminal = os.dup(fds[0]) if tty else -1
        session = ShimSession(self._last_session, self._loop, terminal, on_start)
        session.on_exit = on_exit
        try:
            session.begin(self._sandbox, attempt, spec, fds)
        except OSError:
            session.close()
            raise
        self._sessions[session.pid] = session
        return session

    def _op_examine(self, peer: Peer, request: Message, fds: list[int]) -> Answer:
        """Looks at the container's processes and their stacks. The first descriptor gets the result, the second one is
        py-spy's program, if there is one."""
        attempt = self._get_running(request)
        if len(fds) not in (1, 2):
            raise SessionError("examine needs one descriptor, or two")
        if len(self._sessions) >= _MOST_SESSIONS:
            raise SessionError(f"{_MOST_SESSIONS} programs were started in this Pod and have not ended")
        wanted = VisitRequest(
            self._list_inner_pids(attempt),
            spy=fds[1] if len(fds) > 1 else -1,
            seconds=min(float(request["seconds"]), _LONGEST_VISIT),
            most_bytes=int(request["bytes"]),
        )
        self._last_session += 1
        session = ShimSession(self._last_session, self._loop, -1, lambda _session, _error: None)
        session.container, session.owner, session.is_visit = attempt.spec.name, peer, True
        session.on_exit = lambda _code: None
        session.pid = fork_visitor(self._sandbox, attempt, wanted, fds[0])
        self._sessions[session.pid] = session
        return {"exec_id": session.number}, []

    def _list_inner_pids(self, attempt: Attempt) -> tuple[int, ...]:
        """Of the container's processes as they see themselves, the main one first."""
        alone = all(other is attempt or other.exited is not None for other in self._attempts.values())
        found = self._list_members(attempt, alone=alone)
        inner = [processes.read_inner_pid(pid) if self._sandbox.owns_pids else pid for pid in found]
        visits = (pid for pid, one in self._sessions.items() if one.is_visit)
        return (attempt.pid, *sorted(set(inner) - {0, self._relay, attempt.pid, *visits}))

    def _end_session(self, session: ShimSession, status: int) -> None:
        session.read_report()
        session.close()
        code = os.waitstatus_to_exitcode(status)
        code = code if code >= 0 else 128 - code
        if session.on_exit is not None:
            session.on_exit(code)
        else:
            self.tell({"event": "exec_exited", "exec_id": session.number, "code": code})

    def _op_attach(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        names, fds = sessions.attach(self._get_running(request), list(request.get("streams") or ()))
        return {"streams": names, "tty": self._get_running(request).spec.tty}, fds

    def _op_close_input(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        sessions.close_input(self._get_running(request))
        return {}, []

    def _op_resize(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        if "exec_id" in request:
            found = [item for item in self._sessions.values() if item.number == request["exec_id"]]
            terminal = found[0].tty if found else -1
        else:
            terminal = self._get_running(request).terminal
        sessions.resize(terminal, int(request["rows"]), int(request["cols"]))
        return {}, []

    def _op_connect(self, peer: Peer, request: Message, _fds: list[int]) -> None:
        link = self._sandbox.open_socket()
        link.setblocking(False)
        host = str(request.get("host") or self._sandbox.connect_address)

        def settle(_: int = 0) -> None:
            self._loop.remove(link.fileno())
            number = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                text = f"connect to {host}:{request['port']}: {os.strerror(number).lower()}"
                self._reply(peer, request.get("id"), {"error": text, "kind": "OSError"})
            else:
                self._reply(peer, request.get("id"), {"ok": {}}, [link.fileno()])
            link.close()

        try:
            link.connect((host, int(request["port"])))
        except BlockingIOError:
            self._loop.add(link.fileno(), settle, WRITE)
            return
        except OSError:
            link.close()
            raise
        settle()

    def _op_listen(self, _peer: Peer, request: Message, _fds: list[int]) -> Answer:
        link = self._sandbox.open_socket()
        try:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            link.bind((str(request.get("host") or self._sandbox.connect_address), int(request["port"])))
            link.listen(128)
            port = link.getsockname()[1]
        except OSError:
            link.close()
            raise
        return {"port": port}, [link.detach()]

    def _op_stats(self, _peer: Peer, _request: Message, _fds: list[int]) -> Answer:
        found = self._sandbox.read_stats()
        answer: Message = {"cpu_ns": found.cpu_ns, "rss_bytes": found.rss_bytes, "pids": found.pids}
        answer["stopped"] = found.stopped
        if len(self._attempts) > 1:
            answer["containers"] = self._split_stats()
        return answer, []

    def _split_stats(self) -> Message:
        """Usage per container, from the processes that carry its token and their descendants."""
        names = {attempt.token: attempt.spec.name for attempt in self._attempts.values()}
        split: Message = {name: {"cpu_ns": 0, "rss_bytes": 0} for name in names.values()}
        owners: dict[int, str] = {}
        for process in usage.list_processes():
            name = names.get(processes.find_token(process.pid)) or owners.get(process.parent, "")
            if name:
                owners[process.pid] = name
                split[name]["cpu_ns"] += process.cpu_ns
                split[name]["rss_bytes"] += process.rss_bytes
        return split

    def abandon(self) -> None:
        """Handles the removal of the Pod's directory: kills all processes of the Pod and records nothing."""
        while members := processes.list_descendants(self._machine_pid):
            for pid, _ in members:
                inner = processes.read_inner_pid(pid) if self._sandbox.owns_pids else pid
                if inner > 0:
                    kill_quietly(inner)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        with contextlib.suppress(OSError, SandboxError):
            self._sandbox.close()
        self.closed = True

    def _op_close(self, peer: Peer, request: Message, _fds: list[int]) -> None:
        self._is_closing = True
        self._end_pause()
        self._closing.append((peer, int(request.get("id") or 0)))
        for attempt in self._attempts.values():
            attempt.signal(signal.SIGKILL)
        self._finish_closing()

    def _finish_closing(self) -> None:
        """Once everything has exited and is recorded, removes the sandbox and ends the shim."""
        if not self._is_closing or any(attempt.exited is None for attempt in self._attempts.values()):
            return
        try:
            self._sandbox.close()
        except (OSError, SandboxError) as error:
            launch.write_log(f"sandbox not removed: {error}")
        if self._gang is not None:
            self._gang.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._paths.socket)
        for peer, number in self._closing:
            self._reply(peer, number, {"ok": {}})
        self.closed = True


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the request has no field {error}"
    return str(error) if not isinstance(error, OSError) else (error.strerror or str(error))
