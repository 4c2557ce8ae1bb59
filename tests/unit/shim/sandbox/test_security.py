"""The seccomp program, run by a small interpreter: what it lets through on each machine."""

from __future__ import annotations

import errno
import struct

import pytest

from trainmaster.shim.sandbox.security import DENIED, build_filter, counts_by_namespace

pytestmark = pytest.mark.unit

ALLOWED = 0x7FFF0000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
X32 = 0x40000000
USEFUL = {
    # name: (x86-64, arm64); what Python, torch, NCCL, debuggers and event loops use
    "read": (0, 63),
    "openat": (257, 56),
    "openat2": (437, 437),
    "futex": (202, 98),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236),
    "move_pages": (279, 239),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "epoll_wait": (232, 22),
    "sched_setaffinity": (203, 122),
    "adjtimex": (159, 171),
    "seccomp": (317, 277),
    "rseq": (334, 293),
    "chroot": (161, 51),
    "name_to_handle_at": (303, 264),
    "close_range": (436, 436),
    "statmount": (457, 457),
    "setns_neighbour": (307, 269),
}


def run(program: bytes, number: int, argument: int = 0, architecture: int = 0) -> int:
    """What the kernel's interpreter would answer."""
    steps = [struct.unpack("HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    assert len(steps) < 4096
    data = struct.pack(
        "=iIQ6Q", number if number < 1 << 31 else number - (1 << 32), architecture, 0, argument, *[0] * 5
    )
    position = accumulator = 0
    while True:
        operation, then, otherwise, value = steps[position]
        position += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
            continue
        tests = {
            0x15: accumulator == value,
            0x25: accumulator > value,
            0x35: accumulator >= value,
            0x45: bool(accumulator & value),
        }
        position += then if tests[operation] else otherwise


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(machine: str, pair: tuple[int, int] | int, argument: int = 0) -> int:
    number = pair if isinstance(pair, int) else pair[sorted(ARCHITECTURES, reverse=True).index(machine)]
    return run(build_filter(machine), number, argument, ARCHITECTURES[machine])


def test_every_denied_call_is_refused_and_no_other(machine: str) -> None:
    column = 0 if machine == "x86_64" else 1
    denied = {pair[column] for pair in DENIED.values()}
    program = build_filter(machine)
    for number in range(470):
        want = refused(errno.EPERM) if number in denied else refused(errno.ENOSYS) if number == 435 else ALLOWED
        assert run(program, number, 0, ARCHITECTURES[machine]) == want, number


@pytest.mark.parametrize("name", sorted(USEFUL))
def test_what_programs_need_is_let_through(machine: str, name: str) -> None:
    assert call(machine, USEFUL[name]) == ALLOWED


@pytest.mark.parametrize(
    "name",
    [
        *("io_uring_setup", "io_uring_enter", "io_uring_register", "perf_event_open", "bpf", "userfaultfd", "keyctl"),
        *("fsconfig", "fsmount", "fspick", "open_tree_attr", "setns", "unshare", "syslog", "open_by_handle_at"),
    ],
)
def test_the_ways_out_are_named(name: str) -> None:
    assert name in DENIED


@pytest.mark.parametrize("number", [X32, X32 | 0, X32 | 165, X32 | 520, 470, 500, 0x7FFFFFFF, 0xFFFFFFFF])
def test_numbers_of_other_interfaces_and_of_the_future_are_not_there(machine: str, number: int) -> None:
    assert call(machine, number) == refused(errno.ENOSYS)


def test_calls_of_another_architecture_are_not_there(machine: str) -> None:
    for architecture in {I386, *ARCHITECTURES.values()} - {ARCHITECTURES[machine]}:
        for number in (0, 1, 20, 21, 120, 310):
            assert run(build_filter(machine), number, 0, architecture) == refused(errno.ENOSYS)


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_threads_and_processes_and_no_namespaces(machine: str, flag: int) -> None:
    assert call(machine, (56, 220), 0x3D0F00) == ALLOWED
    assert call(machine, (56, 220), 17) == ALLOWED
    assert call(machine, (56, 220), 17 | flag) == refused(errno.EPERM)


def test_families_of_sockets_that_no_namespace_holds_are_not_there(machine: str) -> None:
    for family in (1, 2, 10, 16, 17):
        assert call(machine, (41, 198), family) == ALLOWED
    for family in (38, 40):
        assert call(machine, (41, 198), family) == refused(errno.EAFNOSUPPORT)
        assert call(machine, (41, 198), family | 1 << 40) == refused(errno.EAFNOSUPPORT), "the upper half is ignored"


def test_a_personality_is_asked_for_and_not_made_dangerous(machine: str) -> None:
    for value in (0, 8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF):
        assert call(machine, (135, 92), value) == ALLOWED
    for value in (0x400000, 0x100000, 0x0400000 | 8, 1, 0xFFFFFFFE):
        assert call(machine, (135, 92), value) == refused(errno.EPERM)


def test_the_filter_is_made_of_whole_instructions_and_every_jump_lands(machine: str) -> None:
    program = build_filter(machine)
    count = len(program) // 8
    assert len(program) % 8 == 0
    for position in range(count):
        code, true, false = program[position * 8], program[position * 8 + 2], program[position * 8 + 3]
        if code in (0x15, 0x25, 0x35, 0x45):
            assert position + 1 + max(true, false) < count
    assert program[-8] == 0x06


def test_an_unknown_machine_has_no_filter() -> None:
    assert build_filter("riscv64") == b""


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.14.0", True),
        ("5.14-rc1", True),
        ("6.1.0-13-amd64", True),
        ("10.0", True),
        ("5.13.19", False),
        ("4.18.0-553.el8", False),
        ("x", False),
    ],
)
def test_processes_are_limited_by_namespace_only_where_the_kernel_counts_so(release: str, expected: bool) -> None:
    assert counts_by_namespace(release) is expected
