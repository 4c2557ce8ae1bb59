"""Code in a tenant's Pod takes the disk: its own limit, its tenant's budget, or all that there is.

At every level that has walls, and as whoever may run a server: none of this needs control groups, or a Unix user of
each tenant's own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.pod.hostile import make_claim, mount_claim
from tests.attacks.site import POD_SECONDS, Caller, Site, add_tenant, running_site, unique
from tests.node.sandboxes import ORDINARY
from tests.support.clients import JSON
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.attacks

FILL = "i=0; while true; do dd if=/dev/zero of=/tmp/f$i bs=1M count=20 2>/dev/null; i=$((i+1)); sleep 0.1; done"
"""Goes on when the disk is full: it takes what others free."""
TAKE = "import time; open('{}/taken', 'wb').write(b'x' * (30 << 20)); time.sleep(300)"
USER_LEVEL: dict[str, Any] = {"environ": {"TRAINMASTER_NODE_ISOLATION": "user"}, "tenant": ("--without-walls",)}
SERVERS: dict[str, dict[str, Any]] = {"full": {}, "user": USER_LEVEL, "ordinary": {**USER_LEVEL, "user": ORDINARY}}
"""Root's at both levels, and that of an ordinary user, to whom nobody gave control groups."""


@dataclass(frozen=True)
class Place:
    """A server whose disk is easily filled, and Pods of which each takes more than it may."""

    site: Site
    disk: SmallDisk
    takers: dict[str, tuple[Caller, str]]
    """By what they take too much of: whose Pod it is, and its name."""

    def wait_for(self, why: str) -> JSON:
        """The Pod as it ended."""
        caller, name = self.takers[why]
        return caller.wait_for_pod(name)


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Place]]:
    """All of them at once, because guards look every five seconds, and after ten for a sizeLimit."""
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_site(name)) for name in SERVERS}
        yield {name: Place(site, disk, start_takers(site)) for name, (site, disk) in opened.items()}


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    return places[request.param]


@contextmanager
def open_site(name: str) -> Iterator[tuple[Site, SmallDisk]]:
    options = SERVERS[name]
    user = options.get("user", 0)
    with tempfile.TemporaryDirectory(prefix="tm-") as folder, small_disk(Path(folder) / "disk", mib=300) as disk:
        os.chmod(folder, 0o755)
        logs = disk.path / "home" / "logs"
        logs.mkdir(parents=True)
        for path in (disk.path, logs.parent, logs):
            os.chown(path, user, user)
        with running_site(disk.path / "home", **options) as site:
            assert site.level == ("full" if name == "full" else "user")
            yield site, disk
            assert site.is_alive()
            assert "Traceback" not in site.server.log, site.server.log[-4000:]


def start_takers(site: Site) -> dict[str, tuple[Caller, str]]:
    flags = () if site.level == "full" else ("--without-walls",)
    ann, small = site.ann, add_tenant(site.server, "small", "--storage", "20M", *flags)
    own: JSON = {"resources": {"limits": {"ephemeral-storage": "20Mi"}}}
    memory: JSON = {"resources": {"limits": {"memory": "20Mi"}}}
    return {
        "volume": (ann, start(ann, [{"name": "data", "emptyDir": {}}], **own)),
        "scratch": (ann, start(ann, **own)),
        "size": (ann, start(ann, [{"name": "data", "emptyDir": {"sizeLimit": "20Mi"}}])),
        "memory": (ann, start(ann, [{"name": "data", "emptyDir": {"medium": "Memory"}}], **memory)),
        "claim": (ann, start(ann, mount_claim(make_claim(ann, "10Mi")))),
        "budget": (small, start(small)),
    }


def start(caller: Caller, volumes: list[JSON] | None = None, **container: Any) -> str:
    """A Pod that puts thirty megabytes into the volume, or into its /tmp."""
    name = unique("taker")
    mounts = [{"name": "data", "mountPath": "/data"}] if volumes else []
    command = ["python3", "-c", TAKE.format("/data" if volumes else "/tmp")]
    full = {"command": command, "volumeMounts": mounts, **container}
    caller.start_pod(name, "", container=full, volumes=volumes or [])
    return name


def remove(caller: Caller, name: str) -> None:
    assert caller.kube.call("DELETE", f"{caller.path('pods', name)}?gracePeriodSeconds=0")[0] == 200


def list_events(caller: Caller, name: str) -> list[JSON]:
    items = caller.kube.get(caller.path("events"))["items"]
    return [event for event in items if event["involvedObject"]["name"] == name]


def wait_for_pressure(owner: Caller) -> None:
    """Said within a second, also where the space was free again before."""
    deadline = time.monotonic() + POD_SECONDS
    while True:
        conditions = owner.kube.get("/api/v1/nodes/local")["status"]["conditions"]
        if {one["type"]: one["status"] for one in conditions}["DiskPressure"] == "True":
            return
        assert time.monotonic() < deadline, conditions
        time.sleep(0.1)


WORDS = {
    "volume": "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
    "scratch": "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
    "size": 'Usage of EmptyDir volume "data" exceeds the limit "20Mi". ',
    "claim": "more than its 10Mi. ",
    "budget": "namespace small keeps ",
}


@pytest.mark.parametrize("why", WORDS)
def test_a_pod_that_takes_more_than_it_may_is_evicted_and_its_scratch_freed(place: Place, why: str) -> None:
    pod = place.wait_for(why)
    assert (pod["status"]["phase"], pod["status"].get("reason")) == ("Failed", "Evicted"), pod["status"]
    assert WORDS[why] in pod["status"]["message"]
    directory = place.site.server.home / "pods" / pod["metadata"]["uid"]
    assert sum(path.stat().st_size for path in directory.rglob("taken")) == 0


def test_a_volume_in_memory_counts_as_memory(place: Place) -> None:
    """By the kernel where there are control groups; else it is measured, with the volumes that have a sizeLimit."""
    pod = place.wait_for("memory")
    status = pod["status"]
    if status.get("reason") == "Evicted":
        assert "medium Memory exceeds the memory limit 20Mi" in status["message"]
    else:
        assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled", status
    deadline = time.monotonic() + POD_SECONDS
    while any(Path("/dev/shm").glob(f"trainmaster-*/{pod['metadata']['uid']}")):
        assert time.monotonic() < deadline, "its memory is not freed"
        time.sleep(0.05)


def test_a_pod_that_fills_the_disk_is_evicted_and_the_server_lives(place: Place) -> None:
    """After the others: by then the store has put something aside, and nothing else of ann's takes space."""
    for why in place.takers:
        place.wait_for(why)
    ann, bob, owner = place.site.ann, place.site.bob, place.site.owner
    bob.start_pod("innocent", "sleep 300")
    bob.wait_for_pod("innocent", "Running")
    ann.start_pod("greedy", FILL)
    greedy = ann.wait_for_pod("greedy")
    assert greedy["status"]["phase"] == "Failed" and greedy["status"]["reason"] == "Evicted", greedy["status"]
    assert "The node was low on resource: ephemeral-storage" in greedy["status"]["message"]
    conditions = {one["type"]: one for one in greedy["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    assert any(event["reason"] == "Evicted" for event in list_events(ann, "greedy"))
    assert place.disk.free > 40 * 1024**2, "its space is free"
    assert bob.kube.get(bob.path("pods", "innocent"))["status"]["phase"] == "Running"
    wait_for_pressure(owner)
    ann.start_pod("again", FILL)
    time.sleep(2)
    assert ann.kube.get(ann.path("pods", "again"))["status"]["phase"] == "Pending", "it waits while the taint is there"
    for caller, name in ((ann, "again"), (ann, "greedy"), (bob, "innocent")):
        remove(caller, name)


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
    # 64 MiB a second for the two, a little more where the server comes late to look; without it they write 10 GiB.
    assert written < 4 << 30
