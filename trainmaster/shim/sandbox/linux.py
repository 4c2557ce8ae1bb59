"""Linux system calls that the standard library lacks: namespaces, mounts, capabilities, clone3, seccomp.

One thin function per call, which raises an OSError with the call's name. Used by the zygote, shims and the probe, all
single-threaded. The numbers are those of x86-64 and arm64; elsewhere the calls fail with ENOSYS and the probe finds
that only the plain level is possible.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_CLONE_PIDFD = 0x1000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_CLONE_INTO_CGROUP = 0x200000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

RESOLVE_NO_MAGICLINKS = 2
RESOLVE_NO_SYMLINKS = 4
RESOLVE_BENEATH = 8
RESOLVE_IN_ROOT = 16

MOUNT_ATTR_RDONLY = 1
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CREATE = 0, 1, 6

_TIME_ERROR = 5
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_TID_ADDRESS = 40
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522

_NUMBERS: dict[str, tuple[int, int]] = {
    # name: (x86-64, arm64)
    "pivot_root": (155, 41),
    "capset": (126, 91),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "mount_setattr": (442, 442),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.unshare.argtypes = [ctypes.c_int]
_libc.setns.argtypes = [ctypes.c_int, ctypes.c_int]
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_libc.syscall.restype = ctypes.c_long
# Holds the GIL during the call, so that the child of clone3 holds it too.
_locked = ctypes.PyDLL(None, use_errno=True)
_locked.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _number(name: str) -> int:
    if _COLUMN is None:
        raise OSError(errno.ENOSYS, f"{name}: not known for {platform.machine()}")
    return _NUMBERS[name][_COLUMN]


def _encode(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(handle: int, kind: int = 0) -> None:
    _check(_libc.setns(handle, kind), f"setns {kind:#x}")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    result = _libc.mount(_encode(source), _encode(target), _encode(kind), flags, _encode(data))
    _check(result, f"mount {kind or source} on {target}")


def umount(target: str, flags: int = MNT_DETACH) -> None:
    _check(_libc.umount2(_encode(target), flags), f"umount {target}")


def bind(source: str, target: str) -> None:
    """Includes everything that is mounted below the source."""
    mount(source, target, None, MS_BIND | MS_REC)


def pivot_root(new: str, old: str) -> None:
    _check(_libc.syscall(_number("pivot_root"), _encode(new), _encode(old)), "pivot_root")


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Linux 5.6 and later. `resolve` restricts which links are followed."""
    how = struct.pack("=QQQ", flags, 0, resolve)
    number = _number("openat2")
    return _check(_libc.syscall(number, directory, os.fsencode(path), how, len(how)), f"open {path}")


def open_tree(path: str) -> int:
    """A detached copy of the mounts at `path` and below, to be attached with `move_mount`."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _check(_libc.syscall(_number("open_tree"), _AT_FDCWD, _encode(path), flags), f"open_tree {path}")


def copy_tree(tree: int) -> int:
    """Like `open_tree`, for a descriptor. Copying a detached tree requires Linux 6.15."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    return _check(_libc.syscall(_number("open_tree"), tree, b"", flags), "open_tree")


def make_tree(kind: str, options: dict[str, str], flags: int) -> int:
    """A new file system as a detached mount. An option without a value is a flag."""
    handle = _check(_libc.syscall(_number("fsopen"), kind.encode(), 1), f"fsopen {kind}")
    try:
        for name, value in options.items():
            command = _FSCONFIG_SET_STRING if value else _FSCONFIG_SET_FLAG
            text = _encode(value) if value else None
            _check(
                _libc.syscall(_number("fsconfig"), handle, command, name.encode(), text, 0), f"{kind} {name}={value}"
            )
        _check(_libc.syscall(_number("fsconfig"), handle, _FSCONFIG_CREATE, None, None, 0), f"make {kind} {options}")
        # The flags that we use have the same bits in the old and the new interface.
        return _check(_libc.syscall(_number("fsmount"), handle, 1, flags), f"fsmount {kind}")
    finally:
        os.close(handle)


def move_mount(tree: int, target: str | int) -> None:
    """Attaches it to a path, or to what a descriptor refers to."""
    if isinstance(target, int):
        where, name, flags = target, b"", _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    else:
        where, name, flags = _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH
    _check(_libc.syscall(_number("move_mount"), tree, b"", where, name, flags), f"mount on {target}")


def set_read_only(path: str | int) -> None:
    """Makes the mount at `path` (or the detached tree) and everything below it read-only; other flags are kept."""
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    if isinstance(path, int):
        where, name, flags = path, b"", _AT_RECURSIVE | _AT_EMPTY_PATH
    else:
        where, name, flags = _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE
    number = _number("mount_setattr")
    _check(_libc.syscall(number, where, name, flags, attributes, len(attributes)), f"read-only {path}")


def prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _check(_libc.prctl(option, *padded), f"prctl {option}")


def set_parent_death_signal(number: int) -> None:
    prctl(_PR_SET_PDEATHSIG, number)


def set_no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_subreaper() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(dumpable: bool) -> None:
    """If not dumpable, other processes of the same uid cannot inspect this one through /proc."""
    prctl(_PR_SET_DUMPABLE, int(dumpable))


def set_process_name(name: str) -> None:
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def keep_capabilities(kept: int) -> None:
    """Drops all capabilities that are not in `kept`, for this process and everything it executes."""
    for number in range(64):
        if kept >> number & 1:
            continue
        try:
            prctl(_PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == errno.EINVAL:  # beyond the last capability of this kernel
                break
            raise
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    set_capabilities(kept)


def set_capabilities(kept: int, inheritable: int = 0) -> None:
    """For this process only; programs it executes get what the bounding set and their user allow."""
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = struct.pack("=IIIIII", low, low, inheritable & 0xFFFFFFFF, high, high, inheritable >> 32)
    _check(_libc.syscall(_number("capset"), header, data), "capset")


def hand_down_capability(number: int) -> None:
    """Keeps only this capability, also for programs that this process executes, whatever their user."""
    keep_capabilities(1 << number)
    set_capabilities(1 << number, 1 << number)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number)


def install_seccomp(program: bytes) -> None:
    """`program` is an array of struct sock_filter. Requires no_new_privs or CAP_SYS_ADMIN."""
    buffer = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(head))


_thread_word = [0]


def keep_thread_number() -> None:
    """Makes cloned children update their thread id, as the C library's fork does; required if the child continues
    without exec. Raises OSError on kernels without checkpoint support."""
    word = ctypes.c_ulong(0)
    prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(word))
    _thread_word[:] = [word.value]


class CommandArea:
    """The memory from which /proc/<pid>/cmdline and environ are read. Created before a fork, used after it."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as stream:
            fields = [int(word) if word.isdigit() else 0 for word in stream.read().rpartition(b")")[2].split()]
        code, data, stack = fields[23:25], fields[42:44], fields[25]
        self._places = (*code, *data, fields[44], stack)
        self._kept: ctypes.Array[ctypes.c_char] | None = None

    def show(self, argv: bytes, environ: bytes) -> None:
        """Sets what other processes read there, as exec would. Each word ends with a NUL."""
        self._kept = ctypes.create_string_buffer(argv + environ, len(argv) + len(environ))
        start = ctypes.addressof(self._kept)
        middle, end = start + len(argv), start + len(argv) + len(environ)
        first_code, last_code, first_data, last_data, first_break, stack = self._places
        _libc.sbrk.restype = ctypes.c_void_p
        places = (first_code, last_code, first_data, last_data, first_break, _libc.sbrk(0), stack)
        # struct prctl_mm_map: addresses, the auxiliary vector (none: unchanged), the executable (-1: unchanged).
        record = struct.pack("=11QQII", *places, start, middle, middle, end, 0, 0, 0xFFFFFFFF)
        buffer = ctypes.create_string_buffer(record, len(record))
        prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.addressof(buffer), len(record))


def clone(flags: int, group: int = -1) -> tuple[int, int]:
    """Like fork: returns (pid, pidfd) in the parent, (0, -1) in the child. Single-threaded processes only.

    `group` is a directory of the unified hierarchy in which the child starts. Moving it there later would take an RCU
    grace period, about 10 ms.
    """
    pidfd = ctypes.c_int(-1)
    flags |= _CLONE_PIDFD | (_CLONE_INTO_CGROUP if group >= 0 else 0)
    if _thread_word[0]:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
    # set_tid_size, cgroup.
    arguments = struct.pack(
        "=11Q", flags, ctypes.addressof(pidfd), _thread_word[0], 0, 17, 0, 0, 0, 0, 0, max(group, 0)
    )
    number = _number("clone3")
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_locked.syscall(number, arguments, len(arguments)))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0, -1
    reason = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(reason, f"clone3: {os.strerror(reason)}")
    return pid, pidfd.value


def write_id_maps(inside_user: int, outside_user: int, inside_group: int, outside_group: int) -> None:
    """After `unshare(CLONE_NEWUSER)`: maps one uid and one gid, which needs no privilege."""
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside_user} {outside_user} 1"),
        ("gid_map", f"{inside_group} {outside_group} 1"),
    ):
        handle = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(handle, content.encode())
        finally:
            os.close(handle)


def open_namespace(kind: str, pid: int | str = "self") -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def is_clock_synchronised() -> bool:
    """Whether NTP or the hypervisor synchronizes the machine's clock."""
    return int(_libc.adjtimex(ctypes.create_string_buffer(256))) != _TIME_ERROR
