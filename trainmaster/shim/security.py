"""Who a container's process is and what it may still ask of the kernel. The last steps before exec.

A root Pod of a root server keeps the capabilities that container runtimes grant by default, less those that reach out
of the Pod: without CAP_SYS_PTRACE it cannot follow /proc/1/root into the shim's file system, without CAP_MKNOD it
cannot make the disk's device node. The seccomp filter is a deny list: it makes exotic calls fail, and is no boundary
of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import resource
import struct

from trainmaster.shim import linux
from trainmaster.shim.protocol import ContainerSpec

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

# name: (x86-64, arm64)
_DENIED = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "bpf": (321, 280),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "userfaultfd": (323, 282),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT = 0x40000000
_CLONE, _CLONE3 = (56, 220), 435
_NEW_NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces; those of clone3 cannot be seen by a filter."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def build_filter(machine: str) -> bytes:
    """A seccomp program for this machine; empty where we do not know the numbers."""
    if machine not in _ARCHITECTURES:
        return b""
    column, architecture = _ARCHITECTURES[machine]
    numbers = sorted(pair[column] for pair in _DENIED.values())
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),
        # Another architecture's calls have other numbers: let none of them through.
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, 0),
    ]
    if column == 0:
        steps += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    # The C library falls back from clone3 to clone, whose flags can be read.
    steps += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for position, number in enumerate(numbers):
        steps.append((_JUMP_EQUAL, len(numbers) - position + 3, 0, number))
    steps += [
        (_JUMP_EQUAL, 0, 2, _CLONE[column]),
        (_LOAD, 0, 0, 16),
        (_JUMP_ANY, 1, 0, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


FILTER = build_filter(platform.machine())


def change_identity(container: ContainerSpec) -> None:
    """To the container's uid, as root of the machine. Capabilities go with the uid, or are cut down here."""
    user = container.run_as_user or 0
    group = container.run_as_group if container.run_as_group is not None else user
    _hand_over_output(user, group)
    os.setgroups(container.groups)
    os.setresgid(group, group, group)
    # The bounding set is cut for ordinary users as well: a setuid program of the machine would bring the rest back.
    linux.keep_capabilities(KEPT_CAPABILITIES)
    if user:
        os.setresuid(user, user, user)


def map_identity(container: ContainerSpec, own_user: int, own_group: int) -> None:
    """To the container's uid as it is seen inside; outside, files belong to the server's user, whoever runs here.

    A user namespace of the container's own: in it the process has no power over the shim, the mounts or the network.
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
    """In the container's user namespace, joined with all capabilities: as `map_identity` left the first process."""
    if container.run_as_user == 0:
        linux.keep_capabilities(KEPT_CAPABILITIES)
    else:
        linux.keep_capabilities(0)


def limit(container: ContainerSpec) -> None:
    """Before the change of user: an exec fails when the user has more processes than it may."""
    for number, most in container.rlimits:
        soft, hard = resource.getrlimit(number)
        ceiling = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(number, (ceiling if soft == resource.RLIM_INFINITY else min(soft, ceiling), ceiling))


def seal(container: ContainerSpec) -> None:
    """Nothing that is executed from here on gains anything."""
    if not container.new_privileges:
        linux.set_no_new_privileges()
        if container.seccomp and FILTER:
            linux.install_seccomp(FILTER)


def _hand_over_output(user: int, group: int) -> None:
    """Programs open /dev/stdout by name, which needs the permission that the descriptor itself does not."""
    if user:
        for handle in (1, 2):
            with contextlib.suppress(OSError):
                os.fchown(handle, user, group)
