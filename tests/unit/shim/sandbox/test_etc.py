"""The hosts file of a Pod: complete lines, in a block that never shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.shim.sandbox.etc import build_hosts, build_nsswitch, rewrite_hosts

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


def test_a_file_that_a_pod_made_huge_is_cut_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    hosts = tmp_path / "etc" / "hosts"
    with hosts.open("wb") as file:
        file.truncate(1 << 40)
    rewrite_hosts(str(tmp_path), [("10.244.0.2", "a-0")])
    assert hosts.stat().st_size == 1 << 20
    assert b"a-0" in hosts.read_bytes()[:4096]


def test_names_come_from_files_only() -> None:
    text = build_nsswitch("passwd: files\nhosts: files dns\nservices: db files\n")
    assert text == "passwd: files\nservices: db files\nhosts: files\n"
    assert build_nsswitch("") == "hosts: files\n"
