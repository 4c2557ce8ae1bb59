"""Code in a tenant's Pod takes the disk: its own limit, its tenant's budget, or all that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.site import Caller, Site, running_site, unique
from tests.support.clients import JSON
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.attacks

FILL = "i=0; while true; do dd if=/dev/zero of=/tmp/f$i bs=1M count=20 2>/dev/null; i=$((i+1)); sleep 0.1; done"
"""Goes on when the disk is full: it takes what others free."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with small_disk(tmp_path_factory.mktemp("disk") / "disk", mib=150) as disk:
        yield disk


@pytest.fixture(scope="module")
def small_site(disk: SmallDisk) -> Iterator[Site]:
    """A server whose disk is easily filled."""
    with running_site(disk.path / "home") as site:
        yield site
        assert site.is_alive()
        assert "Traceback" not in site.server.log, site.server.log[-4000:]


def _wait(check: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def _list_events(caller: Caller, name: str) -> list[JSON]:
    items = caller.kube.get(caller.path("events"))["items"]
    return [event for event in items if event["involvedObject"]["name"] == name]


def test_a_pod_that_fills_the_disk_is_evicted_and_the_server_lives(small_site: Site, disk: SmallDisk) -> None:
    ann, bob, owner = small_site.ann, small_site.bob, small_site.owner
    bob.start_pod("innocent", "sleep 300")
    bob.wait_for_pod("innocent", "Running")
    time.sleep(3)  # the store has put something aside
    ann.start_pod("greedy", FILL)
    greedy = ann.wait_for_pod("greedy")
    assert greedy["status"]["phase"] == "Failed" and greedy["status"]["reason"] == "Evicted", greedy["status"]
    assert "The node was low on resource: ephemeral-storage" in greedy["status"]["message"]
    conditions = {one["type"]: one for one in greedy["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    assert any(event["reason"] == "Evicted" for event in _list_events(ann, "greedy"))
    assert disk.free > 40 * 1024**2, "its space is free"
    assert bob.kube.get(bob.path("pods", "innocent"))["status"]["phase"] == "Running"
    node = owner.kube.get("/api/v1/nodes/local")
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["DiskPressure"] == "True"
    ann.start_pod("again", FILL)
    time.sleep(2)
    assert ann.kube.get(ann.path("pods", "again"))["status"]["phase"] == "Pending", "it waits while the taint is there"
    for caller, name in ((ann, "again"), (ann, "greedy"), (bob, "innocent")):
        assert caller.kube.call("DELETE", f"{caller.path('pods', name)}?gracePeriodSeconds=0")[0] == 200


def test_a_pod_above_its_own_limit_is_evicted_and_its_scratch_freed(site: Site) -> None:
    name = unique("limited")
    resources = {"limits": {"ephemeral-storage": "20Mi"}}
    script = (
        "dd if=/dev/zero of=/tmp/f bs=1M count=15 2>/dev/null; dd if=/dev/zero of=/scratch/f bs=1M count=15; sleep 300"
    )
    site.ann.start_pod(
        name,
        script,
        container={"resources": resources, "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    pod = site.ann.wait_for_pod(name)
    assert pod["status"]["reason"] == "Evicted"
    assert pod["status"]["message"] == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "
    )
    directory = site.server.home / "pods" / pod["metadata"]["uid"]
    assert sum(path.stat().st_size for path in directory.rglob("f")) == 0
    site.ann.kube.delete(site.ann.path("pods", name))


def test_a_pod_that_logs_without_end_is_evicted_at_its_limit(site: Site) -> None:
    """Rotation bounds what one container may keep (50 MiB, and five older pieces); its limit counts logs too."""
    name = unique("chatty")
    resources = {"limits": {"ephemeral-storage": "60Mi"}}
    site.ann.start_pod(name, "yes trainmaster-trainmaster-trainmaster", container={"resources": resources})
    pod = site.ann.wait_for_pod(name)
    assert pod["status"]["reason"] == "Evicted"
    folder = Path(site.server.home, "pods", pod["metadata"]["uid"], "logs")
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 320 * 1024**2
    assert "trainmaster" in site.ann.kube.get(site.ann.path("pods", name, "log") + "?tailLines=2"), "logs stay"
    site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")


def test_pods_that_write_without_end_leave_the_disk_to_others_too(site: Site) -> None:
    """Two of them, which delete what they wrote: no budget is exceeded. Together they get what one tenant has."""
    if site.level != "full":
        pytest.skip("nothing can be frozen")
    code = """
import os, time
piece, written, began = bytes(1 << 20), 0, time.monotonic()
while time.monotonic() - began < 6:
    with open("/tmp/f", "wb", buffering=0) as file:
        for _ in range(32):
            written += file.write(piece)
print(written)
"""
    names = [unique("writer") for _ in range(2)]
    for name in names:
        site.ann.start_pod(name, "", container={"command": ["python3", "-c", code]})
    written = 0
    for name in names:
        assert site.ann.wait_for_pod(name)["status"]["phase"] == "Succeeded"
        written += int(site.ann.read_log(name))
        site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")
    # 64 MiB a second for the two; each alone writes many times as much. They do not begin in the same moment.
    assert written < 3 * 6 * (64 << 20)
