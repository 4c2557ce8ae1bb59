"""The sandbox of a Pod: built once by the shim, entered by every container, closed with the Pod.

`prepare_zygote` runs once in the zygote, `clone_flags` says how the zygote clones a shim, `build_pod` runs in the new
shim, and `Sandbox.enter` in a forked child just before exec. The level is part of the spec; the node chose it from what
the probe found. There is no silent fallback to a weaker level: if something cannot be built, `SandboxError` is raised
and the Pod does not start.

The shim itself stays in the machine's mount and network namespaces: it reads the Pod's files and relays connections.
All containers of a Pod share its network, UTS, IPC and PID namespaces; each has its own root.
"""

from __future__ import annotations

import glob
import json
import os
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.shim.protocol import (
    FULL,
    HOST_NETWORK,
    OWN_NETWORK,
    PLAIN,
    USER,
    ContainerSpec,
    Mount,
    Paths,
    ResourceLimits,
    SandboxSpec,
    write_whole,
)
from trainmaster.shim.sandbox import cgroups, etc, linux, network, relay, rootfs, security
from trainmaster.shim.sandbox.devices import make_shm
from trainmaster.shim.usage import ProcessUsage, list_processes, measure_unnamed


class SandboxError(Exception):
    """The sandbox cannot be built as requested; the text is one sentence for the Pod's event."""


@dataclass(frozen=True, slots=True)
class Stats:
    cpu_ns: int
    rss_bytes: int
    pids: int
    stopped: int
    """How many of the processes a signal or a debugger has stopped."""


@dataclass(frozen=True, slots=True)
class _InheritedState:
    """What the zygote prepared and every shim inherits."""

    level: str
    user: int
    group: int
    switch: int
    common: str
    """Directory of files that are the same in all Pods."""
    hierarchies: cgroups.Hierarchies


_inherited = _InheritedState(PLAIN, os.geteuid(), os.getegid(), -1, "", cgroups.Hierarchies())


def prepare_zygote(root: str, level: str) -> None:
    """Called once when the zygote starts, before any thread and the first clone. `root` holds the Pod directories."""
    global _inherited  # one per process, inherited by fork
    user, group = os.geteuid(), os.getegid()
    shims = list_shims(root) if level != PLAIN else []
    if level == USER:
        _enter_user_namespace(shims)
    switch = -1
    if level != PLAIN:
        found = network.find_switch(shims)
        switch = network.make_switch(may_return=level == FULL) if found is None else found
    common = f"{root}/.common"
    if level != PLAIN:
        etc.write_common(common)
    _inherited = _InheritedState(level, user, group, switch, common, cgroups.read_hierarchies())


def describe_inherited() -> dict[str, str | int]:
    """The state for another zygote that this one executes, which stays in these namespaces and inherits the switch."""
    ids = {"user": _inherited.user, "group": _inherited.group, "switch": _inherited.switch}
    return {"level": _inherited.level, "common": _inherited.common, **ids}


def restore_inherited(described: dict[str, str | int]) -> None:
    """Called in that other zygote instead of `prepare_zygote`."""
    global _inherited
    level, common = str(described["level"]), str(described["common"])
    user, group, switch = int(described["user"]), int(described["group"]), int(described["switch"])
    if switch >= 0:
        os.set_inheritable(switch, False)
    _inherited = _InheritedState(level, user, group, switch, common, cgroups.read_hierarchies())


def _enter_user_namespace(shims: list[tuple[str, int]]) -> None:
    """Joins the user namespace of Pods that an earlier zygote left behind, or creates one, with a mount namespace below
    it."""
    for _, pid in shims:
        try:
            handle = linux.open_namespace("user", pid)
            linux.setns(handle, linux.CLONE_NEWUSER)
        except OSError:
            continue
        linux.unshare(linux.CLONE_NEWNS)
        break
    else:
        user, group = os.geteuid(), os.getegid()
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        linux.write_id_maps(0, user, 0, group)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_SLAVE)


def list_shims(root: str) -> list[tuple[str, int]]:
    """(Pod directory, pid) of every running shim below `root`."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        boot = stream.read().strip()
    found = []
    for name in os.listdir(root) if os.path.isdir(root) else ():
        try:
            with open(Paths(f"{root}/{name}").identity, "rb") as file:
                who = json.load(file)
            with open(f"/proc/{who['pid']}/stat") as status:
                ticks = int(status.read().rpartition(")")[2].split()[19])
        except (OSError, ValueError, KeyError):
            continue
        if who.get("boot_id") == boot and who.get("start_ticks") == ticks:
            found.append((f"{root}/{name}", int(who["pid"])))
    return found


def clone_flags(level: str) -> int:
    """The flags for clone3 when the zygote creates the shim of a Pod at this level."""
    return 0 if level == PLAIN else linux.CLONE_NEWPID


def build_pod(paths: Paths, pod: SandboxSpec) -> Sandbox:
    if pod.level not in (PLAIN, _inherited.level):
        raise SandboxError(
            f"the Pod wants isolation level {pod.level}, but this node was started with {_inherited.level}"
        )
    sandbox = Sandbox(paths, pod)
    try:
        sandbox.build()
    except OSError as error:
        sandbox.close()
        raise SandboxError(f"cannot build the sandbox: {error.strerror}") from error
    return sandbox


class Sandbox:
    def __init__(self, paths: Paths, pod: SandboxSpec) -> None:
        self.paths = paths
        self.pod = pod
        tenant = (pod.tenant_cgroup, pod.tenant_limits)
        self._group = cgroups.PodGroup(_inherited.hierarchies, pod.cgroup, *tenant) if pod.cgroup else None
        self._network: network.PodNetwork | None = None
        self._host_listeners: tuple[int, ...] = ()
        """Listeners of relays in the machine's network, if the Pod shares it."""
        self._oom_kills: dict[str, int] = {}
        self._born_inside = False
        self._shm = -1
        self._etc: list[Mount] = []

    @property
    def owns_pids(self) -> bool:
        """Whether the shim is PID 1 of the Pod's own pid namespace: then `kill(-1)` reaches the Pod and nothing
        else."""
        return self.pod.level != PLAIN

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that must stay open in the shim; all of them close on exec."""
        ours = () if self._network is None else (self._network.namespace,)
        return tuple(handle for handle in (_inherited.switch, self._shm, *ours, *self.listeners) if handle >= 0)

    def build(self) -> None:
        self._write_record()
        if self._group is not None:
            self._group.build(self.pod.limits)
        if self.pod.network == HOST_NETWORK:
            self._host_listeners = tuple(network.listen(r.address, r.port).detach() for r in self.pod.relays)
        if self.pod.level == PLAIN:
            return
        linux.unshare(linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
        socket.sethostname(self.pod.hostname)
        if self.pod.network == OWN_NETWORK:
            self._network = network.connect_pod(
                _inherited.switch,
                self.pod.address,
                self.pod.prefix,
                self.pod.relays,
                may_return=self._may_return,
                segment=self.pod.segment,
            )
        self._shm = make_shm(self._get_shm_size())
        self._etc = etc.write_files(self.paths.directory, self.pod, _inherited.common)

    def _write_record(self) -> None:
        """Written before anything is created. Groups are absolute paths, since their location depends on who started
        us."""
        groups = self._group.paths if self._group is not None else []
        record = {"groups": groups, **(network.build_record(_inherited.switch) if _inherited.switch >= 0 else {})}
        if groups or _inherited.switch >= 0:
            write_whole(self.paths.sandbox, json.dumps(record).encode())

    @property
    def _may_return(self) -> bool:
        return self.pod.level == FULL

    def fork(self, container: ContainerSpec) -> int:
        """Forks a child that will `enter` or `join`; it starts in the container's control group."""
        if self._group is None:
            return os.fork()
        if self._group.renew(container.name):
            self._oom_kills.pop(container.name, None)
        group = self._group.prepare(container.name, container.limits)
        if group < 0:
            return os.fork()
        try:
            pid, pidfd = linux.clone(0, group)
        finally:
            os.close(group)
        self._born_inside = pid == 0
        if pid:
            os.close(pidfd)
        return pid

    def enter(self, container: ContainerSpec) -> None:
        """In the child, just before exec: sets up everything except descriptors, session and signals."""
        try:
            self._enter(container)
        except OSError as error:
            raise SandboxError(error.strerror or str(error)) from error

    def _enter(self, container: ContainerSpec) -> None:
        os.umask(0o022)
        self._join_groups(container)
        self._pin(container.limits)
        if self.pod.level == PLAIN:
            security.limit(container)
            _change_plain_identity(container)
        else:
            if self._network is not None:
                linux.setns(self._network.namespace, linux.CLONE_NEWNET)
            linux.unshare(linux.CLONE_NEWNS)
            rootfs.build_root(self._build_root_options(container))
            _make_directory(container.directory)
            if self.pod.level == USER:
                security.map_identity(container, _inherited.user, _inherited.group)
                security.limit_inside(container, self.pod.limits.pids)
            else:
                security.limit(container)
                security.change_identity(container)
        _change_directory(container.directory)
        if self.pod.level != PLAIN:
            security.seal(container)

    def _build_root_options(self, container: ContainerSpec) -> rootfs.RootOptions:
        is_root = self.pod.level == FULL
        return rootfs.RootOptions(
            mounts=(*self._etc, self._build_message_mount(container), *container.mounts),
            hide=(*self.pod.hide, *(list_closed(container) if is_root else ())),
            writable=self.pod.host_writable,
            read_only_root=container.read_only_root,
            devices=container.devices,
            shm=self._copy_shm(container),
            own_network=self._network is not None,
            protect_proc=is_root and not container.run_as_user,
            scratch=f"{self.paths.directory}/scratch/{container.name}.{container.attempt}",
            user_namespace=not is_root,
        )

    def _build_message_mount(self, container: ContainerSpec) -> Mount:
        return Mount(container.message_path, self.paths.message(container.name, container.attempt))

    def _copy_shm(self, container: ContainerSpec) -> int:
        """All containers share /dev/shm; on kernels that cannot copy a detached tree, each has its own."""
        try:
            return linux.copy_tree(self._shm)
        except OSError:
            return make_shm(self._get_shm_size(container.limits.memory))

    def _get_shm_size(self, memory: int = 0) -> int:
        return self.pod.shm_bytes or (memory or self.pod.limits.memory) // 2

    def join(self, container: ContainerSpec, pidfd: int) -> None:
        """In a forked child: joins the running container whose main process is `pidfd`, for `exec`."""
        if self.pod.level == PLAIN:
            self.enter(container)
            return
        try:
            self._join(container, pidfd)
        except OSError as error:
            raise SandboxError(error.strerror or str(error)) from error

    def _join(self, container: ContainerSpec, pidfd: int) -> None:
        os.umask(0o022)
        self._join_groups(container)
        if self._network is not None:
            linux.setns(self._network.namespace, linux.CLONE_NEWNET)
        if self.pod.level == USER:
            linux.setns(pidfd, linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
            security.drop_after_join(container)
            security.limit_inside(container, self.pod.limits.pids)
        else:
            security.limit(container)
            linux.setns(pidfd, linux.CLONE_NEWNS)
            security.change_identity(container)
        _change_directory(container.directory)
        security.seal(container)

    def visit(self, container: ContainerSpec, pidfd: int) -> None:
        """In a forked child: joins the running container whose main process is `pidfd` to look at its processes, with
        their user and rights, but outside of its control groups and limits."""
        try:
            self._visit(container, pidfd)
        except OSError as error:
            raise SandboxError(error.strerror or str(error)) from error

    def _visit(self, container: ContainerSpec, pidfd: int) -> None:
        os.umask(0o077)
        if self.pod.level == PLAIN:
            _change_plain_identity(container)
        else:
            if self._network is not None:
                linux.setns(self._network.namespace, linux.CLONE_NEWNET)
            if self.pod.level == USER:
                linux.setns(pidfd, linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
                security.drop_for_visit()
            else:
                linux.setns(pidfd, linux.CLONE_NEWNS)
                security.change_identity(container)
        os.chdir("/")
        security.seal_visit()

    def _join_groups(self, container: ContainerSpec) -> None:
        if self._group is None:
            return
        if not self._born_inside:
            handle = self._group.prepare(container.name, container.limits)
            if handle >= 0:
                os.close(handle)
        self._group.join(container.name, unified=not self._born_inside)

    def _pin(self, limits: ResourceLimits) -> None:
        """Without a cpu controller, limits the process to a set of processors, chosen by the Pod's uid."""
        millis = limits.cpu_millis or self.pod.limits.cpu_millis
        available = sorted(os.sched_getaffinity(0))
        wanted = -(-millis // 1000)
        if millis and wanted < len(available) and (self._group is None or "cpu" not in _inherited.hierarchies.limits):
            first = zlib.crc32(self.pod.uid.encode()) % len(available)
            os.sched_setaffinity(0, [available[(first + step) % len(available)] for step in range(wanted)])

    def open_socket(self) -> socket.socket:
        """A TCP socket in the Pod's network, neither bound nor connected."""
        if self._network is None:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        return network.open_socket(self._network.namespace, may_return=self._may_return)

    @property
    def connect_address(self) -> str:
        """The address at which such a socket reaches a server inside the Pod."""
        return "127.0.0.1"

    @property
    def listeners(self) -> tuple[int, ...]:
        """Watch these for reading; when one is ready, call `serve` once and stop watching all of them."""
        return self._network.listeners if self._network is not None else self._host_listeners

    def serve(self) -> int:
        """Forks the relay for all listeners and returns its pid. When it has died, watch the listeners again."""
        return relay.start(self.listeners, self.pod.relays)

    def kill(self, container: str) -> bool:
        """Sends SIGKILL to every process of the container, including detached ones. False: not possible at this
        level."""
        return self._group is not None and self._group.kill(container)

    def freeze(self, *, frozen: bool) -> bool:
        """False: not possible at this level."""
        return self._group is not None and self._group.freeze(frozen=frozen)

    def was_oom_killed(self, container: str) -> bool:
        """Whether a process was OOM-killed since the last call for this container."""
        if self._group is None:
            return False
        before, now = self._oom_kills.get(container, 0), self._group.count_oom_kills(container)
        self._oom_kills[container] = now
        return now > before

    def needs_watch(self, limits: ResourceLimits) -> bool:
        """Whether a memory or pid limit is not enforced by the kernel, so that `list_over_limit` must be called about
        once a second."""
        enforced = _inherited.hierarchies.limits if self._group is not None else frozenset[str]()
        if (limits.memory or self.pod.limits.memory) and "memory" not in enforced:
            return True
        return bool(self.pod.limits.pids) and "pids" not in enforced

    def list_over_limit(self, running: Mapping[int, tuple[str, int]]) -> dict[str, str]:
        """`running`: pid of the main process -> (container, bytes). Returns the containers that exceed a limit, each
        with "memory" or "pids"."""
        owner: dict[int, str] = {}
        used: dict[str, int] = {}
        threads: dict[str, int] = {}
        processes = list_processes()
        for process in processes:
            name = owner.get(process.parent) or running.get(process.local, ("", 0))[0]
            owner[process.pid] = name
            used[name] = used.get(name, 0) + process.rss_bytes
            threads[name] = threads.get(name, 0) + process.threads
        over = {name: "memory" for name, limit in running.values() if limit and used.get(name, 0) > limit}
        whole = self.pod.limits
        unmapped = self._measure_unmapped(processes) if whole.memory else 0
        for what, amounts, total, most in (
            ("memory", used, sum(used.values()) + unmapped, whole.memory),
            ("pids", threads, sum(threads.values()), whole.pids),
        ):
            if not over and running and most and total > most:
                over[max((name for name, _ in running.values()), key=lambda name: amounts.get(name, 0))] = what
        return over

    def _measure_unmapped(self, processes: Sequence[ProcessUsage]) -> int:
        """Shared memory in addition to what processes have mapped, which is counted with them."""
        shared = self._measure_shm() + measure_unnamed(processes, own_ipc=self.pod.level != PLAIN)
        return max(0, shared - sum(process.shared_bytes for process in processes))

    def _measure_shm(self) -> int:
        """Files in /dev/shm are memory even if no process has them mapped."""
        if self._shm < 0:
            return 0
        try:
            found = os.fstatvfs(self._shm)
        except OSError:
            return 0
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def read_stats(self) -> Stats:
        """Usage of the whole Pod."""
        processes = list_processes()
        usage = self._group.read_usage() if self._group is not None else cgroups.GroupUsage(None, None)
        cpu = sum(process.cpu_ns for process in processes) if usage.cpu_ns is None else usage.cpu_ns
        rss = sum(process.rss_bytes for process in processes) if usage.memory is None else usage.memory
        return Stats(cpu, rss, len(processes), sum(process.is_stopped for process in processes))

    def close(self) -> None:
        """Removes everything that `build_pod` created. All processes of the Pod have exited before."""
        if self._network is not None:
            for handle in (self._network.namespace, *self._network.listeners):
                os.close(handle)
            self._network = None
        for handle in self._host_listeners:
            os.close(handle)
        self._host_listeners = ()
        if self._shm >= 0:
            os.close(self._shm)
            self._shm = -1
        if self.pod.level != PLAIN:
            self._open_layers()
        cgroups.clean_up(self.paths)

    def _open_layers(self) -> None:
        """Overlays leave directories that not even their owner may list; makes them removable."""
        for path in glob.glob(f"{glob.escape(self.paths.directory)}/scratch/*/layer*/work/work"):
            os.chmod(path, 0o700)


def list_closed(container: ContainerSpec, stat: Callable[[str], os.stat_result] = os.stat) -> list[str]:
    """Directories that the container's user may not enter, but that contain mounts for it (e.g. an environment in
    root's home). Only the mounts are visible there; without this not even those would be."""
    if not container.run_as_user:
        return []
    groups = {container.run_as_group or 0, *container.groups}
    found: dict[str, None] = {}
    for mount in container.mounts:
        path = ""
        for name in mount.target.split("/")[1:-1]:
            path = f"{path}/{name}"
            try:
                status = stat(path)
            except OSError:
                break
            bit = 0o100 if status.st_uid == container.run_as_user else 0o010 if status.st_gid in groups else 0o001
            if not status.st_mode & bit:
                found[path] = None
                break
    return list(found)


def _change_plain_identity(container: ContainerSpec) -> None:
    user = container.run_as_user
    if os.geteuid() == 0:
        if user is not None or container.run_as_group is not None:
            group = container.run_as_group if container.run_as_group is not None else (user or 0)
            os.setgroups(container.groups)
            os.setresgid(group, group, group)
        if user is not None:
            os.setresuid(user, user, user)
    elif user is not None and user != os.geteuid():
        raise SandboxError(f"runAsUser {user} needs a server that runs as root, or user namespaces")


def _make_directory(path: str) -> None:
    """Creates a working directory that the image would have contained, if possible."""
    try:
        os.close(rootfs.make_point(path))
    except OSError:
        return  # changing into it reports the error


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise SandboxError(f"cannot change into the working directory {path}: {error.strerror}") from error
