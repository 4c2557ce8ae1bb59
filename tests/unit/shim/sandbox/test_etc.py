"""The hosts file of a Pod: complete lines at every moment, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainmaster.shim.sandbox.etc import build_hosts, build_nsswitch, rewrite_hosts, write_common

pytestmark = pytest.mark.unit


SHORT = [("10.244.0.2", "a-0.a.ns.svc.cluster.local", "a-0")]
LONG = [(f"10.244.0.{i}", "name" * 10) for i in range(200)]


def test_lines_follow_localhost_and_nothing_follows_them() -> None:
    assert build_hosts(SHORT).decode().split("\n") == [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "10.244.0.2\ta-0.a.ns.svc.cluster.local a-0",
        "",
    ]


@pytest.mark.parametrize(("before", "after"), [(SHORT, LONG), (LONG, SHORT), (SHORT, SHORT), ([], SHORT)])
def test_readers_see_the_lines_before_or_after_a_change(
    before: Sequence[Sequence[str]], after: Sequence[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "etc" / "hosts"
    hosts.parent.mkdir()
    hosts.write_bytes(build_hosts(before))
    seen: list[bytes] = []

    def look(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            result = call(*arguments)
            seen.append(b"\n".join(filter(None, hosts.read_bytes().split(b"\n"))) + b"\n")
            return result

        return wrapped

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, look(getattr(os, name)))
    rewrite_hosts(str(tmp_path), after)
    assert set(seen) <= {build_hosts(before), build_hosts(after)}
    assert hosts.read_bytes() == build_hosts(after)


def test_a_file_that_a_pod_made_huge_is_cut_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    hosts = tmp_path / "etc" / "hosts"
    with hosts.open("wb") as file:
        file.truncate(1 << 40)
    rewrite_hosts(str(tmp_path), [("10.244.0.2", "a-0")])
    assert hosts.read_bytes() == build_hosts([("10.244.0.2", "a-0")])


def test_names_come_from_files_only() -> None:
    text = build_nsswitch("passwd: files\nhosts: files dns\nservices: db files\n")
    assert text == "passwd: files\nservices: db files\nhosts: files\n"
    assert build_nsswitch("") == "hosts: files\n"


def test_a_common_file_is_replaced_only_if_it_has_changed(tmp_path: Path) -> None:
    """A shim may be about to mount it, and a file that was replaced meanwhile cannot be mounted."""
    write_common(str(tmp_path))
    before = {path.name: (path.stat().st_ino, path.read_text()) for path in tmp_path.iterdir()}
    assert set(before) == {"resolv.conf", "nsswitch.conf"}
    write_common(str(tmp_path))
    assert {path.name: (path.stat().st_ino, path.read_text()) for path in tmp_path.iterdir()} == before
    (tmp_path / "resolv.conf").write_text("of another version")
    write_common(str(tmp_path))
    assert (tmp_path / "resolv.conf").read_text() == before["resolv.conf"][1]
