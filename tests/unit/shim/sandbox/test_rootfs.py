"""What is planned for a container's private root: nothing of it is ever made on the machine's own tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from trainmaster.shim.protocol import ContainerSpec, Mount
from trainmaster.shim.sandbox.beneath import is_below
from trainmaster.shim.sandbox.build import list_closed
from trainmaster.shim.sandbox.rootfs import Host, RootEntry, RootOptions, RootPlan, plan_root, sort_mounts

pytestmark = pytest.mark.unit

DIRECTORIES = {"/", "/etc", "/usr", "/usr/lib", "/var", "/var/tmp", "/srv", "/tmp", "/dev", "/proc", "/sys", "/run"}
FILES = {"/etc/hosts", "/etc/passwd"}
LINKS = {"/lib": "/usr/lib", "/var/run": "/run"}


def resolve(path: str) -> str:
    for link, target in LINKS.items():
        if is_below(path, [link]):
            return target + path[len(link) :]
    return os.path.normpath(path)


def find_kind(path: str) -> str:
    return "dir" if path in DIRECTORIES else "file" if path in FILES else ""


HOST = Host(
    [
        RootEntry("lib", "usr/lib", False),
        *(RootEntry(path[1:]) for path in sorted(DIRECTORIES) if path.count("/") == 1 and path != "/"),
    ],
    resolve,
    find_kind,
)


def plan(targets: Sequence[str], hide: Sequence[str] = (), files: Sequence[str] = ()) -> RootPlan:
    wishes = RootOptions([Mount(target, "/source") for target in targets], hide=hide)
    return plan_root(HOST, wishes, lambda mount: mount.target not in files)


def test_top_level_directories_are_bound_and_private_ones_are_not() -> None:
    found = plan([])
    assert found.binds == ("/etc", "/srv", "/usr", "/var")
    assert found.links == (("/lib", "usr/lib"),)
    assert set(found.empty) == {"/dev", "/proc", "/run", "/sys", "/tmp"}


@pytest.mark.parametrize(
    ("target", "want_points", "want_overlays"),
    [
        pytest.param("/etc/hosts", (), (), id="a path that the machine has needs nothing"),
        pytest.param("/data/deep", (("/data/deep", True),), (), id="a new top-level directory lies in the tmpfs"),
        pytest.param("/srv/x/y", (("/srv/x/y", True),), ("/srv",), id="the deepest existing ancestor gets an overlay"),
        pytest.param("/lib/x", (("/usr/lib/x", True),), ("/usr/lib",), id="links of the machine are followed"),
        pytest.param("/var/run/secrets/x", (), (), id="a link into a private directory is made there"),
        pytest.param("/tmp/x", (), (), id="in /tmp it is made in the Pod's own"),
        pytest.param("/dev/termination-log", (), (), id="in /dev too"),
        pytest.param("/var/tmp/x", (), (), id="and in /var/tmp"),
    ],
)
def test_a_missing_mount_point_gets_a_place(
    target: str, want_points: tuple[tuple[str, bool], ...], want_overlays: tuple[str, ...]
) -> None:
    found = plan([target])
    assert (found.points, found.overlays) == (want_points, want_overlays)


def test_a_mount_below_another_is_made_inside_it() -> None:
    found = plan(["/data/inner/deep", "/data"])
    assert found.points == (("/data", True),)


def test_a_file_gets_a_file_as_its_mount_point() -> None:
    assert plan(["/etc/x.conf"], files=["/etc/x.conf"]).points == (("/etc/x.conf", False),)


def test_mounts_below_a_hidden_directory_need_no_overlay() -> None:
    found = plan(["/srv/server/pod/work"], hide=["/srv/server"])
    assert found.hidden == ("/srv/server",)
    assert (found.points, found.overlays) == ((("/srv/server/pod/work", True),), ())


def test_what_is_private_anyway_is_not_hidden_again() -> None:
    assert plan([], hide=["/tmp/home"]).hidden == ()


def test_mounts_go_from_the_outside_in_and_the_last_of_two_wins() -> None:
    mounts = [Mount("/a/b/c", "1"), Mount("/a", "2"), Mount("/a/b/", "3"), Mount("/a", "4")]
    assert [mount.source for mount in sort_mounts(mounts)] == ["4", "3", "1"]


def test_a_name_that_begins_alike_is_not_below() -> None:
    assert is_below("/tmp/x", ["/tmp"]) and is_below("/tmp", ["/tmp"]) and not is_below("/tmpfs", ["/tmp"])


def test_a_user_sees_its_mounts_in_directories_that_it_may_not_enter() -> None:
    modes = {"/closed": (0o700, 0, 0), "/srv": (0o755, 0, 0), "/srv/team": (0o750, 0, 50), "/srv/own": (0o700, 1000, 0)}

    def stat(path: str) -> os.stat_result:
        mode, user, group = modes[path]
        return os.stat_result((mode, 0, 0, 0, user, group, 0, 0, 0, 0))

    targets = ("/closed/env", "/closed/deep/other", "/srv/team/env", "/srv/own/env", "/srv/env")
    mounts = tuple(Mount(target, target) for target in targets)
    spec = ContainerSpec("main", 0, ("true",), {}, "/", mounts=mounts, run_as_user=1000, run_as_group=1000)
    assert list_closed(spec, stat) == ["/closed", "/srv/team"]
    assert list_closed(replace(spec, groups=(50,)), stat) == ["/closed"]
    assert list_closed(replace(spec, run_as_user=0), stat) == list_closed(replace(spec, run_as_user=None), stat) == []
