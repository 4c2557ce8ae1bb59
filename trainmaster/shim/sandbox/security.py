"""Drops privileges of a container's process: user, capabilities, seccomp, limits. The last steps before exec.

A root Pod of a root server keeps the capabilities that container runtimes grant by default, except those that reach
outside the Pod: without CAP_SYS_PTRACE it cannot follow /proc/1/root into the shim's file system, without CAP_MKNOD it
cannot create the device node of a disk. The seccomp filter is a deny list that makes unusual calls fail; it is not a
security boundary by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import resource
import struct
from collections.abc import Iterable

from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.sandbox import linux

_KEPT_NAMES = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "net_raw": 13,
    "sys_chroot": 18,
    "audit_write": 29,
    "setfcap": 31,
}
KEPT_CAPABILITIES = sum(1 << number for number in _KEPT_NAMES.values())

_TRACING = 19
"""CAP_SYS_PTRACE."""

_NONE = -1
# name: (x86-64, arm64)
DENIED = {
    # Mounts: the Pod's root is built before.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "fanotify_init": (300, 262),
    # Namespaces.
    "unshare": (272, 97),
    "setns": (308, 268),
    # Kernel modules, log and keys.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "bpf": (321, 280),
    "syslog": (103, 116),
    "acct": (163, 89),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "iopl": (172, _NONE),
    "ioperm": (173, _NONE),
    # Large, and the vector of most recent escapes.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kcmp": (312, 272),
    "vhangup": (153, 58),
    # Obsolete.
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "create_module": (174, _NONE),
    "get_kernel_syms": (177, _NONE),
    "query_module": (178, _NONE),
    "uselib": (134, _NONE),
    "ustat": (136, _NONE),
    "sysfs": (139, _NONE),
    "_sysctl": (156, _NONE),
    "vserver": (236, _NONE),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE3 = 435
_FIRST_UNKNOWN = 470
"""Newer calls are treated as if the kernel did not have them. The x32 calls of x86-64 have such numbers too."""
_CLONE, _SOCKET, _PERSONALITY = (56, 220), (41, 198), (135, 92)
_NEW_NAMESPACES = 0x7E020000
"""The flags of clone that create namespaces; a filter cannot see those of clone3."""
_FAMILIES = (38, 40)
"""AF_ALG (kernel crypto) and AF_VSOCK, which network namespaces do not isolate."""
_ASK_PERSONALITY, _PERSONALITIES = 0xFFFFFFFF, 0x0008 | 0x20000 | 0x40000
"""32-bit names, old version numbers, and no randomised addresses, as debuggers ask for."""
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_AT_LEAST, _JUMP_ANY, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
"""Offsets in the data that seccomp provides; of the first argument the lower half."""

_Step = tuple[int, int, str, str]
"""(operation, value, label if true, label if false); "" is the next step."""


def build_filter(machine: str) -> bytes:
    """A seccomp program for this architecture; empty if its system call numbers are unknown."""
    if machine not in _ARCHITECTURES:
        return b""
    column, architecture = _ARCHITECTURES[machine]
    steps: list[_Step] = [
        (_LOAD, _ARCHITECTURE, "", ""),
        # Calls of other architectures have other numbers: refuse them all.
        (_JUMP_EQUAL, architecture, "", "unknown"),
        (_LOAD, _NUMBER, "", ""),
        (_JUMP_AT_LEAST, _FIRST_UNKNOWN, "unknown", ""),
        # The C library falls back from clone3 to clone, whose flags can be checked.
        (_JUMP_EQUAL, _CLONE3, "unknown", ""),
        (_JUMP_EQUAL, _CLONE[column], "clone", ""),
        (_JUMP_EQUAL, _SOCKET[column], "socket", ""),
        (_JUMP_EQUAL, _PERSONALITY[column], "personality", ""),
    ]
    for first, last in _list_ranges(sorted(pair[column] for pair in DENIED.values() if pair[column] != _NONE)):
        steps += [(_JUMP_AT_LEAST, first, "", "allow"), (_JUMP_ABOVE, last, "", "deny")]
    parts: dict[str, list[_Step]] = {
        "allow": [(_RETURN, _ALLOW, "", "")],
        "deny": [(_RETURN, _ERRNO | errno.EPERM, "", "")],
        "unknown": [(_RETURN, _ERRNO | errno.ENOSYS, "", "")],
        "clone": [(_LOAD, _ARGUMENT, "", ""), (_JUMP_ANY, _NEW_NAMESPACES, "deny2", "allow2")],
        "socket": [
            (_LOAD, _ARGUMENT, "", ""),
            *((_JUMP_EQUAL, family, "family", "") for family in _FAMILIES),
            (_RETURN, _ALLOW, "", ""),
        ],
        "family": [(_RETURN, _ERRNO | errno.EAFNOSUPPORT, "", "")],
        "personality": [
            (_LOAD, _ARGUMENT, "", ""),
            (_JUMP_EQUAL, _ASK_PERSONALITY, "allow2", ""),
            (_JUMP_ANY, ~_PERSONALITIES & 0xFFFFFFFF, "deny2", "allow2"),
        ],
        # Jumps are forward only.
        "allow2": [(_RETURN, _ALLOW, "", "")],
        "deny2": [(_RETURN, _ERRNO | errno.EPERM, "", "")],
    }
    return _assemble(steps, parts)


def _list_ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _assemble(steps: list[_Step], parts: dict[str, list[_Step]]) -> bytes:
    places: dict[str, int] = {}
    for name, part in parts.items():
        places[name] = len(steps)
        steps = [*steps, *part]
    packed = []
    for position, (operation, value, then, otherwise) in enumerate(steps, 1):
        jumps = [places[name] - position if name else 0 for name in (then, otherwise)]
        # struct sock_filter: jump offsets are one byte.
        packed.append(struct.pack("HBBI", operation, *jumps, value))
    return b"".join(packed)


FILTER = build_filter(platform.machine())


def change_identity(container: ContainerSpec) -> None:
    """As root of the machine: changes to the container's uid. Capabilities are lost with the uid, or restricted
    here."""
    user = container.run_as_user or 0
    group = container.run_as_group if container.run_as_group is not None else user
    _hand_over_output(user, group)
    os.setgroups(container.groups)
    os.setresgid(group, group, group)
    # The bounding set is restricted for ordinary users as well: a setuid program would regain the rest.
    linux.keep_capabilities(KEPT_CAPABILITIES)
    if user:
        os.setresuid(user, user, user)


def map_identity(container: ContainerSpec, own_user: int, own_group: int) -> None:
    """Changes to the container's uid in a new user namespace; outside, files belong to the server's user.

    In its own user namespace the process has no privileges over the shim, the mounts or the network.
    """
    user = own_user if container.run_as_user is None else container.run_as_user
    group = container.run_as_group
    if group is None:
        group = own_group if container.run_as_user is None else user
    outer_user, outer_group = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER)
    linux.write_id_maps(user, outer_user, group, outer_group)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if user == 0:
        linux.keep_capabilities(KEPT_CAPABILITIES)


def drop_after_join(container: ContainerSpec) -> None:
    """After joining the container's user namespace with all capabilities: drops them as `map_identity` did."""
    if container.run_as_user == 0:
        linux.keep_capabilities(KEPT_CAPABILITIES)
    else:
        linux.keep_capabilities(0)


def drop_for_visit() -> None:
    """After joining the container's user namespace with all capabilities, to look at its processes: keeps the right to
    do so even where Yama restricts it to a process's ancestors. In that namespace are only this container's processes;
    over all others it gives nothing, and no process of the container gets it."""
    linux.hand_down_capability(_TRACING)


def limit(container: ContainerSpec) -> None:
    """Called before changing the user: exec fails if the user already has more processes than the limit."""
    _set_limits(container.rlimits)


def limit_inside(container: ContainerSpec, pids: int) -> None:
    """Limits processes in the container's own user namespace, where the kernel counts them separately. A limit that is
    set before would count all processes of the server's user. So the Pod's `pids` limit applies to each container."""
    inside = [(number, most) for number, most in container.rlimits if number != resource.RLIMIT_NPROC]
    if pids and _COUNTS_INSIDE:
        inside.append((resource.RLIMIT_NPROC, pids))
    _set_limits(inside)


def counts_by_namespace(release: str) -> bool:
    """Linux 5.14 and later; before that, the limit was on all processes of the server's user."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)


_COUNTS_INSIDE = counts_by_namespace(platform.release())


def _set_limits(limits: Iterable[tuple[int, int]]) -> None:
    for number, most in limits:
        soft, hard = resource.getrlimit(number)
        ceiling = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(number, (ceiling if soft == resource.RLIM_INFINITY else min(soft, ceiling), ceiling))


def seal(container: ContainerSpec) -> None:
    """Prevents executed programs from gaining privileges."""
    if not container.new_privileges:
        linux.set_no_new_privileges()
        if container.seccomp and FILTER:
            linux.install_seccomp(FILTER)


def seal_visit() -> None:
    """The same for a process that looks at a container, whatever that container's programs may do."""
    linux.set_no_new_privileges()
    if FILTER:
        linux.install_seccomp(FILTER)


def _hand_over_output(user: int, group: int) -> None:
    """Gives output files to the user: opening /dev/stdout by name requires permissions that the descriptor does not."""
    if user:
        for handle in (1, 2):
            with contextlib.suppress(OSError):
                os.fchown(handle, user, group)
