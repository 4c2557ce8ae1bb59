"""The hosts file of a Pod: complete lines, in a block that never shrinks."""

from __future__ import annotations

import pytest

from trainmaster.shim.etc import build_hosts, build_nsswitch
from trainmaster.shim.security import build_filter

pytestmark = pytest.mark.unit


def test_lines_follow_localhost_and_fill_a_block() -> None:
    content = build_hosts([("10.244.0.2", "a-0.a.ns.svc.cluster.local", "a-0")])
    assert len(content) == 4096
    assert content.decode().split("\n")[0::2][:2] == [
        "127.0.0.1\tlocalhost",
        "10.244.0.2\ta-0.a.ns.svc.cluster.local a-0",
    ]


def test_a_shorter_version_fills_the_old_size() -> None:
    long = build_hosts([(f"10.244.0.{i}", "name" * 10) for i in range(200)])
    assert len(long) % 4096 == 0 and len(long) > 4096
    assert len(build_hosts([], len(long))) == len(long)


def test_names_come_from_files_only() -> None:
    text = build_nsswitch("passwd: files\nhosts: files dns\nservices: db files\n")
    assert text == "passwd: files\nservices: db files\nhosts: files\n"
    assert build_nsswitch("") == "hosts: files\n"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_made_of_whole_instructions_and_every_jump_lands(machine: str) -> None:
    program = build_filter(machine)
    count = len(program) // 8
    assert len(program) % 8 == 0
    for position in range(count):
        code, true, false = program[position * 8], program[position * 8 + 2], program[position * 8 + 3]
        if code in (0x15, 0x35, 0x45):
            assert position + 1 + max(true, false) < count
    assert program[-8] == program[-16] == 0x06


def test_an_unknown_machine_has_no_filter() -> None:
    assert build_filter("riscv64") == b""
