"""Finds out which isolation features this machine supports by trying them, each in its own child process.

`python -m trainmaster.shim.probe` prints the findings as JSON. The node runs it once per boot and user and caches the
result (`trainmaster/node/host/isolation.py`), as a separate program because the control plane has threads and must not
fork. Nothing remains of a trial: its namespaces end with the child, its control group is removed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict

from trainmaster.shim.features import (
    GROUPS,
    KILL,
    MOUNTS,
    NETWORK,
    OVERLAY,
    PROCESSES,
    SECCOMP,
    USER_NAMESPACE,
    IsolationFinding,
)
from trainmaster.shim.protocol import Relay, ResourceLimits
from trainmaster.shim.sandbox import cgroups, linux, network, security


def probe() -> list[IsolationFinding]:
    """Must be called in a process with one thread."""
    root = os.geteuid() == 0
    as_root = root and _try(_try_mounts)[0]
    first = _settle if as_root else _enter_user
    findings = [
        _find(USER_NAMESPACE, _enter_user),
        _find(MOUNTS, lambda: first() + _try_mounts()),
        _find(OVERLAY, lambda: first() + _try_overlay()),
        _find(PROCESSES, lambda: first() + _try_processes()),
        _find(NETWORK, lambda: first() + _try_network(may_return=as_root)),
        _find(SECCOMP, _try_seccomp),
    ]
    return [*findings, *_list_groups()]


def _find(name: str, work: Callable[[], str]) -> IsolationFinding:
    works, detail = _try(work)
    return IsolationFinding(name, works, detail)


def _try(work: Callable[[], str]) -> tuple[bool, str]:
    """Runs `work` in a child: (whether it succeeded, its message)."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            text = work()
            status = 0
        except OSError as error:
            text = error.strerror or str(error)
        os.write(writer, text.encode()[:1000])
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode()
    _, status = os.waitpid(child, 0)
    return status == 0, said or ("ended by a signal" if status else "")


def _settle() -> str:
    return ""


def _enter_user() -> str:
    user, group = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER)
    linux.write_id_maps(0, user, 0, group)
    return ""


def _stage() -> str:
    """A mount namespace with an empty tmpfs at the returned path."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    place = tempfile.gettempdir()
    linux.mount("tmpfs", place, "tmpfs", 0, "mode=755,size=1m")
    return place


def _try_mounts() -> str:
    place = _stage()
    tree = linux.open_tree("/usr")
    linux.set_read_only(tree)
    os.mkdir(f"{place}/usr")
    linux.move_mount(tree, f"{place}/usr")
    os.chdir(place)
    linux.pivot_root(".", ".")
    linux.umount(".")
    return "a private root can be built"


def _try_overlay() -> str:
    place = _stage()
    for name in ("lower", "upper", "work", "all"):
        os.mkdir(f"{place}/{name}")
    options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
    try:
        linux.mount("overlay", f"{place}/all", "overlay", 0, options)
    except OSError:
        linux.mount("overlay", f"{place}/all", "overlay", 0, f"{options},userxattr")
    return "writable layers over directories"


def _try_processes() -> str:
    pid, pidfd = linux.clone(linux.CLONE_NEWPID)
    if pid == 0:
        status = 1
        try:
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
            linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
            linux.mount("proc", "/proc", "proc", 0)
            status = 0 if os.readlink("/proc/self") == "1" else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    if status:
        raise OSError(1, "a process namespace with its own /proc is refused")
    return "processes of a Pod see only each other"


def _try_network(*, may_return: bool) -> str:
    switch = network.make_switch(may_return=may_return)
    network.connect_pod(switch, "10.244.0.2", 16, [Relay("10.96.0.1", 443)], may_return=may_return)
    return "each Pod has its own address and ports"


def _try_seccomp() -> str:
    linux.set_no_new_privileges()
    if not security.FILTER:
        raise OSError(38, f"no filter for {platform.machine()}")
    linux.install_seccomp(security.FILTER)
    return "calls that only a runtime makes are refused"


def _list_groups() -> list[IsolationFinding]:
    hierarchies = cgroups.read_hierarchies()
    group = cgroups.PodGroup(hierarchies, f"probe-{os.getpid()}")
    limited = ", ".join(sorted(hierarchies.limits - {"cpuacct"}))
    try:
        group.build(ResourceLimits(memory=1 << 30, cpu_millis=1000, pids=100))
        made = IsolationFinding(GROUPS, bool(limited), f"{hierarchies.mode}: {limited or 'no controller can be used'}")
        kill = group.kill()
    except OSError as error:
        made, kill = IsolationFinding(GROUPS, False, f"{hierarchies.mode}: {error}"), False
    finally:
        group.remove()
    said = "a Pod's processes end at once, all of them" if kill else "processes are looked for one by one"
    return [made, IsolationFinding(KILL, kill, said)]


def main() -> int:
    sys.stdout.write(json.dumps([asdict(finding) for finding in probe()]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
