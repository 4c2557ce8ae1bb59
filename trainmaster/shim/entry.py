"""The life of a shim, from the fork to its exit: lock, identity, sandbox, containers, loop.

An error before the first container starts is reported through the connection that the zygote passed on, and the shim
exits. The lock makes sure that of two shims for one Pod only one proceeds.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Sequence

from trainmaster.shim import launch, processes, wire
from trainmaster.shim.attempt import AlreadyBegun
from trainmaster.shim.lock import Held, take_lock
from trainmaster.shim.loop import Loop
from trainmaster.shim.pod import SandboxedPod
from trainmaster.shim.protocol import HELD, ContainerSpec, Paths, SandboxSpec, decode, encode, read_whole
from trainmaster.shim.sandbox import linux
from trainmaster.shim.sandbox.build import SandboxError, build_pod


def run_shim(directory: str, start: Sequence[Sequence[object]], link: socket.socket | None) -> int:
    """Runs in the forked process, after `detach`. Returns the exit status."""
    paths = Paths(directory)
    try:
        _redirect(paths)
        lock = take_lock(paths)
        pod = _build(paths, lock)
    except (Held, SandboxError, OSError, ValueError, TypeError) as error:
        if link is not None:
            _refuse(link, error)
        return 1
    try:
        if link is not None:
            pod.add_peer(link, subscribed=True)
        pod.tell({"event": "ready"})
        for container, number in start:
            _start_first(pod, str(container), int(str(number)))
        while not pod.closed:
            pod.run_once()
            if os.fstat(lock).st_nlink == 0:
                # The Pod's directory was removed: nobody can find this shim any more, and nothing can be recorded.
                pod.abandon()
    except Exception:  # noqa: BLE001 - logged by the shim; the control plane sees that it is gone
        launch.write_log(traceback.format_exc())
        return 1
    os.close(lock)
    return 0


def detach() -> None:
    """Detaches from the zygote. Independent of the Pod, so a spare shim has already done it."""
    os.setsid()
    linux.set_process_name("tm-shim")
    linux.set_subreaper()
    rehearse()


def rehearse() -> None:
    """Runs the code that every start needs once in the zygote, so that its memory is initialized before forking."""
    decode(SandboxSpec, encode(SandboxSpec("", "", "", "")))
    decode(ContainerSpec, encode(ContainerSpec("", 0, ("",), {}, "")))
    encode(processes.read_identity())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        wire.send(ours, {"event": ""})
        wire.receive(theirs)


def _redirect(paths: Paths) -> None:
    """Sends the shim's own messages to a log file, which is created when there is something to write."""
    launch.set_log(f"{paths.directory}/shim.log")


def _build(paths: Paths, lock: int) -> SandboxedPod:
    spec = decode(SandboxSpec, read_whole(paths.pod))
    # Written in place, because the lock belongs to the file and not to its name. Readers look only while the lock is
    # held, and use a pid only together with its start time.
    os.ftruncate(lock, 0)
    os.pwrite(lock, encode(processes.read_identity()), 0)
    sandbox = build_pod(paths, spec)
    pod = SandboxedPod(Loop(), paths, sandbox, wire.listen_in(paths.directory, os.path.basename(paths.socket)))
    if spec.gang_socket:
        pod.serve_gang(spec.gang_socket)
    return pod


def _start_first(pod: SandboxedPod, container: str, number: int) -> None:
    try:
        pod.start(container, number)
    except AlreadyBegun:
        return  # an earlier request has done this
    except OSError as error:
        pod.tell({"event": "refused", "container": container, "attempt": number, "error": str(error)})


def _refuse(link: socket.socket, error: Exception) -> None:
    kind = HELD if isinstance(error, Held) else type(error).__name__
    try:
        wire.send(link, {"event": "failed", "error": str(error), "kind": kind})
    except OSError:
        sys.stderr.write(f"cannot say why: {error}\n")
