"""The control plane's side of shims: creates, adopts, signals and closes the processes of Pods.

Used by the agent. Everything that matters is on disk before it is reported here, so a supervisor can be killed at any
time and the next one finds the same Pods (`adopt`). Events are passed to one callback as `Began`, `AttemptEnded` and
`Lost`, at least once each: the same event may be reported twice (from disk and by the shim). When the supervisor stops,
the Pods keep running.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from trainmaster.kit.scopes import Scope
from trainmaster.node.shims.link import Answer, ShimError, ShimGone, ShimLink
from trainmaster.node.shims.pod_directory import FoundPod, is_locked, read_found
from trainmaster.node.shims.warm import WarmZygote
from trainmaster.node.shims.zygotes import ZygoteError, Zygotes
from trainmaster.shim import wire
from trainmaster.shim.lock import Held, take_lock
from trainmaster.shim.processes import is_alive, kill_marked, kill_quietly
from trainmaster.shim.protocol import (
    HELD,
    PLAIN,
    SUB_PATHS_SINCE,
    ContainerSpec,
    Exited,
    Paths,
    ProcessIdentity,
    SandboxSpec,
    Started,
    decode,
    encode,
    write_whole,
)
from trainmaster.shim.sandbox.cgroups import clean_up
from trainmaster.shim.trees import remove_tree
from trainmaster.shim.wire import Message

log = logging.getLogger(__name__)

_LAUNCH_LIMIT = 60.0
_CLOSE_LIMIT = 15.0
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Began:
    uid: str
    container: str
    attempt: int
    started: Started


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    uid: str
    container: str
    attempt: int
    exited: Exited


@dataclass(frozen=True, slots=True)
class Lost:
    """The shim died: nothing of the Pod runs any more, and how its containers ended is unknown."""

    uid: str


ShimEvent: TypeAlias = Began | AttemptEnded | Lost


class SupervisorError(Exception):
    """An error of the machine; the text is one sentence for the Pod's event."""


class Supervisor:
    def __init__(
        self, root: Path, notify: Callable[[ShimEvent], None], level: str = PLAIN, warm_budget: int = 1 << 30
    ) -> None:
        """`warm_budget`: bytes of memory for all warm zygotes."""
        self._root = root
        self._notify = notify
        self.zygotes = Zygotes(root, level, warm_budget)
        self._links: dict[str, ShimLink] = {}
        self._scope = Scope("supervisor")
        self._sweep: asyncio.Task[None] | None = None
        self._fallen: set[str] = set()

    async def __aenter__(self) -> Supervisor:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._scope.__aenter__()
        # Started before the first Pod needs it; if this fails it is retried then, and the Pod gets the error.
        self._scope.spawn_guarded(self._warm_up(), name="supervisor.zygote")
        return self

    async def __aexit__(self, *error: Any) -> None:
        links, self._links = self._links, {}
        for link in links.values():
            link.close()
        try:
            await self._scope.__aexit__(*error)
        finally:
            self.zygotes.close()

    async def _warm_up(self) -> None:
        try:
            await self.zygotes.connect()
        except ZygoteError as error:
            log.warning("no zygote", extra={"action": "node.no_zygote", "error": str(error)})

    def get_paths(self, uid: str) -> Paths:
        return Paths(str(self._root / uid))

    def get_logs(self, uid: str) -> str:
        """The directory with the logs of a Pod."""
        return f"{self.get_paths(uid).directory}/logs"

    def list_uids(self) -> list[str]:
        """Of all existing Pod directories."""
        return [entry.name for entry in os.scandir(self._root) if entry.is_dir() and not entry.name.startswith(".")]

    # Begin

    async def create(
        self, uid: str, pod: SandboxSpec, first: Sequence[ContainerSpec], warm_zygote: WarmZygote | None = None
    ) -> None:
        """Writes the spec, then starts the shim with these containers; returns when the sandbox is built.

        The Pod must be durable in the API before. May be called again after a crash: nothing is started twice. The shim
        is forked from `warm_zygote` if that is ready.
        """
        paths = self.get_paths(uid)
        try:
            os.makedirs(f"{paths.directory}/run", 0o700, exist_ok=True)
            for spec in first:
                write_whole(paths.spec(spec.name, spec.attempt), encode(spec))
            write_whole(paths.pod, encode(pod))
            starts = [[spec.name, spec.attempt] for spec in first]
            message = {"op": "pod", "dir": paths.directory, "level": pod.level, "start": starts}
            await self._launch(uid, paths, message, warm_zygote)
        except TimeoutError:
            raise SupervisorError(f"the shim was not ready within {_LAUNCH_LIMIT:.0f} s") from None
        except OSError as error:
            raise SupervisorError(_explain(error)) from error
        except (ZygoteError, ShimError) as error:
            raise SupervisorError(str(error)) from error

    def prepare_warm(self, warm_zygote: WarmZygote) -> None:
        """Starts it in the background, for the Pods that come when it is ready."""
        if self.zygotes.needs_warm(warm_zygote):
            self._scope.spawn_guarded(self.ensure_warm(warm_zygote), name="supervisor.warm")

    async def ensure_warm(self, warm_zygote: WarmZygote, *, is_idle: bool = False) -> None:
        """Returns when it is ready or has failed, or was stopped: `is_idle` lets it import only until a Pod starts."""
        if self.zygotes.needs_warm(warm_zygote):
            await self.zygotes.start_warm(warm_zygote, is_idle=is_idle)

    async def _launch(self, uid: str, paths: Paths, message: Message, warm_zygote: WarmZygote | None) -> None:
        for number in range(_TRIES):
            if number and uid not in self._links and read_found(paths, alive=False).list_lost():
                # It died after it had started them: another shim would not start them again, nor know their exit.
                await self._settle_loss(uid)
                return
            if uid not in self._links and not await self._ask_zygote(uid, message, warm_zygote):
                continue
            if uid in self._links:
                return
            if await self._connect(uid, paths):
                for container, attempt in message["start"]:
                    await self._start(uid, container, attempt)
                # An earlier shim may have started them, and seen them exit, before it was connected.
                self._report(read_found(paths, alive=True))
                return
        raise SupervisorError("the shim died while the Pod was started")

    async def _ask_zygote(self, uid: str, request: Message, warm_zygote: WarmZygote | None) -> bool:
        """Whether the Pod has a running shim now, ours or an earlier one. False: it died, and a retry makes sense."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.setblocking(False)
            if warm_zygote is None or not self.zygotes.send_warm(warm_zygote, request, theirs.fileno()):
                await self.zygotes.send(request, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        first: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_event(message: Message) -> None:
            if not first.done():
                first.set_result(message)
                if message["event"] == "ready":
                    return
            self._take(uid, message)

        def on_gone(gone: ShimLink) -> None:
            if not first.done():
                first.set_exception(ShimGone("the shim died while it was started"))
            elif self._links.get(uid) is gone:
                self._note_gone(uid)

        link = ShimLink(ours, on_event, on_gone)
        try:
            async with asyncio.timeout(_LAUNCH_LIMIT):
                message = await first
        except ShimGone:
            return False
        except BaseException:
            link.close()
            raise
        if message["event"] == "ready":
            self._links[uid] = link
            if link.gone.done():
                self._note_gone(uid)
            return True
        link.close()
        if message.get("kind") == HELD:
            return True
        raise ShimError(str(message.get("error")), str(message.get("kind")))

    async def start(self, uid: str, spec: ContainerSpec) -> None:
        """Starts another container or attempt of a Pod that has a shim. Raises ShimGone if it has none."""
        paths = self.get_paths(uid)
        if any(mount.sub_path for mount in spec.mounts) and not _knows_sub_paths(paths):
            raise SupervisorError(
                "the Pod was started by an earlier version of the server, which could not mount a subPath safely: "
                "delete the Pod, and it starts anew"
            )
        try:
            write_whole(paths.spec(spec.name, spec.attempt), encode(spec))
        except OSError as error:
            raise SupervisorError(_explain(error)) from error
        await self._start(uid, spec.name, spec.attempt)

    async def _start(self, uid: str, container: str, number: int) -> None:
        try:
            await self.request(uid, "start", container=container, attempt=number)
        except ShimError as error:
            if error.kind != "AlreadyBegun":
                raise

    # While it runs

    def has_shim(self, uid: str) -> bool:
        return uid in self._links

    async def request(self, uid: str, op: str, fds: Sequence[int] = (), **fields: Any) -> Answer:
        """Any operation of the shim. Raises ShimGone if the Pod has none, ShimError if it refuses."""
        link = self._links.get(uid)
        if link is None:
            raise ShimGone("the Pod has no shim")
        return await link.request(op, fields, fds)

    async def signal(self, uid: str, container: str, number: int) -> None:
        """Signals the container's main process and its group, if it is running."""
        await self._tell(uid, "signal", container=container, signal=number)

    async def kill(self, uid: str, container: str) -> None:
        """Sends SIGKILL to all processes of the container."""
        await self._tell(uid, "kill", container=container)

    async def pause(self, uid: str, seconds: float) -> None:
        """Freezes the Pod for a time, if supported. Raises ShimError if the shim is too old."""
        await self._tell(uid, "pause", seconds=seconds)

    async def _tell(self, uid: str, op: str, **fields: Any) -> None:
        try:
            await self.request(uid, op, **fields)
        except ShimGone:
            return  # the container is gone with the shim, which is reported as Lost

    def get_exec_exit(self, uid: str, session: int) -> asyncio.Future[int]:
        link = self._links.get(uid)
        if link is None:
            raise ShimGone("the Pod has no shim")
        return link.get_exit(session)

    # Adoption

    async def adopt(self, uid: str) -> FoundPod:
        """The state from the directory and the running shim. From now on its events are reported."""
        paths = self.get_paths(uid)
        alive = uid in self._links or await self._connect(uid, paths)
        found = read_found(paths, alive=alive)
        if not alive and found.list_lost() and not found.rebooted:
            await self._kill_leftovers(uid)
        return found

    async def _connect(self, uid: str, paths: Paths) -> bool:
        """False if the Pod has no running shim."""
        while True:
            try:
                link = wire.connect_in(paths.directory, os.path.basename(paths.socket))
            except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, BlockingIOError) as error:
                if not isinstance(error, BlockingIOError) and not is_locked(paths):
                    return False
                # It holds the lock but does not listen yet: it is building its sandbox, or about to exit.
                await asyncio.sleep(0.005)
                continue

            shim = ShimLink(link, lambda message: self._take(uid, message), lambda _: self._note_gone(uid))
            self._links[uid] = shim
            try:
                await shim.request("subscribe")
            except ShimGone:
                self._forget(uid)
                continue
            return True

    def _take(self, uid: str, message: Message) -> None:
        event = message["event"]
        if event not in ("started", "exited", "refused"):
            return
        container, attempt = str(message["container"]), int(message["attempt"])
        if event == "started":
            self._notify(Began(uid, container, attempt, Started(**message["started"])))
        elif event == "exited":
            self._notify(AttemptEnded(uid, container, attempt, Exited(**message["exited"])))
        else:
            self._notify(AttemptEnded(uid, container, attempt, Exited(128, 0.0, error=str(message["error"]))))

    def _note_gone(self, uid: str) -> None:
        """The connection broke unexpectedly."""
        if self._links.pop(uid, None) is not None:
            self._scope.spawn_guarded(self._settle_loss(uid), name="supervisor.loss")

    async def _settle_loss(self, uid: str) -> None:
        """Either the shim disconnected us because we were too slow: reconnect. Or it is dead, and so is the Pod."""
        found = await self.adopt(uid)
        self._report(found)
        if not found.alive:
            log.warning("shim lost", extra={"action": "node.shim_lost", "uid": uid})
            await self._kill_leftovers(uid)
            self._notify(Lost(uid))

    def _report(self, found: FoundPod) -> None:
        """Reports the attempts that have exited, because nobody may have been connected at the time."""
        for attempt in found.attempts:
            if attempt.started is not None and not attempt.unfinished:
                self._notify(Began(found.uid, attempt.container, attempt.number, attempt.started))
            if attempt.exited is not None:
                self._notify(AttemptEnded(found.uid, attempt.container, attempt.number, attempt.exited))

    async def _kill_leftovers(self, uid: str) -> None:
        """Kills processes that Pods of dead shims left behind, in one scan of all processes for many Pods."""
        self._fallen.add(uid)
        while uid in self._fallen:
            if self._sweep is None or self._sweep.done():
                self._sweep = self._scope.spawn(self._sweep_lost(), name="supervisor.sweep")
            await asyncio.shield(self._sweep)

    async def _sweep_lost(self) -> None:
        uids = set(self._fallen)
        await asyncio.to_thread(_clear_away, uids, [self.get_paths(uid) for uid in uids])
        self._fallen -= uids

    # The end

    async def close(self, uid: str) -> None:
        """Kills everything of the Pod and its shim; logs and records stay and can be removed."""
        paths = self.get_paths(uid)
        if uid not in self._links:
            await self._connect(uid, paths)
        link = self._links.get(uid)
        is_closed = False
        if link is not None:
            try:
                async with asyncio.timeout(_CLOSE_LIMIT):
                    self._links.pop(uid)
                    await link.request("close")
                    await link.gone
                    is_closed = True
            except ShimGone:
                log.debug("shim gone before it was closed")
            except (TimeoutError, ShimError):
                await self._force(uid, paths)
            finally:
                link.close()
        await self._seal(uid, paths, is_closed=is_closed)

    async def _force(self, uid: str, paths: Paths) -> None:
        """For a shim that does not respond: the kernel kills the Pod with it, or the sweep does."""
        who = _read_identity(paths)
        log.warning("shim killed", extra={"action": "node.shim_killed", "uid": uid})
        if who is not None and is_alive(who):
            kill_quietly(who.pid)
        await self._kill_leftovers(uid)

    async def _seal(self, uid: str, paths: Paths, *, is_closed: bool) -> None:
        """Prevents a shim that the zygote is still starting from finding the Pod. `is_closed`: its shim has ended
        everything and said so."""
        try:
            lock = take_lock(paths)
        except FileNotFoundError:
            return
        except Held:
            await self._force(uid, paths)
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(paths.pod)
            if not is_closed and read_found(paths, alive=False).list_lost():
                await self._kill_leftovers(uid)
            if _has_groups(paths):
                await asyncio.to_thread(clean_up, paths)
        finally:
            os.close(lock)

    async def remove(self, uid: str) -> None:
        """Removes the directory of a closed Pod, with its logs."""
        directory = self.get_paths(uid).directory
        if not await asyncio.to_thread(remove_tree, directory):
            log.warning("directory not removed", extra={"action": "node.directory_left", "directory": directory})

    def _forget(self, uid: str) -> None:
        link = self._links.pop(uid, None)
        if link is not None:
            link.close()


def _clear_away(uids: set[str], pods: list[Paths]) -> None:
    kill_marked(uids)
    for paths in pods:
        try:
            clean_up(paths)
        except OSError as error:  # the zygote cleans up too, and closing the Pod retries
            log.warning("groups not removed", extra={"action": "node.groups_left", "error": str(error)})


def _has_groups(paths: Paths) -> bool:
    return os.path.exists(paths.sandbox)


def _read_identity(paths: Paths) -> ProcessIdentity | None:
    try:
        return decode(ProcessIdentity, Path(paths.identity).read_bytes())
    except (OSError, ValueError, TypeError):
        return None


def _knows_sub_paths(paths: Paths) -> bool:
    who = _read_identity(paths)
    return who is None or who.version >= SUB_PATHS_SINCE


def _explain(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise the limit (ulimit -n) of the control plane"
    if error.errno == errno.ENOSPC:
        return "no space left on the disk that holds the Pods"
    return f"cannot start the Pod: {error.strerror or error}"
