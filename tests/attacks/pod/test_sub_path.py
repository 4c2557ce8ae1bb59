"""A Pod changes a volume while another Pod of the same tenant has parts of it mounted (CVE-2021-25741 and its like).

The aim is the machine: a subPath, a mount point or a working directory that is a link to /proc, /etc or another
tenant's directory at the moment when root looks.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.attacks.pod.hostile import EXCHANGE, make_claim, mount_claim, show_failure
from tests.attacks.site import Caller, Site, unique
from tests.node.sandboxes import LEVELS, Sandboxes, run_sandboxed
from trainmaster.shim.protocol import ContainerSpec, Mount

pytestmark = pytest.mark.attacks

COUNT = 12
ROUNDS = 4
LOOK = (
    "for i in $(seq 0 11); do [ -e /m/$i/marker ] && echo own || { [ -e /m/$i/1 ] && echo PROC || echo other; }; done"
)


def mount_all(sub_path: str) -> dict[str, object]:
    return {"volumeMounts": [{"name": "data", "mountPath": f"/m/{i}", "subPath": sub_path} for i in range(COUNT)]}


def run_to_some_end(caller: Caller, name: str, script: str, **spec: object) -> str:
    """What the Pod printed, or why it did not run: a refusal is as good as the right directory."""
    caller.start_pod(name, script, **spec)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            pod = caller.kube.get(caller.path("pods", name))
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                return caller.read_log(name) + show_failure(pod)
            if "subPath" in show_failure(pod):
                return show_failure(pod)
            time.sleep(0.05)
        raise AssertionError(pod["status"])
    finally:
        caller.kube.delete(f"{caller.path('pods', name)}?gracePeriodSeconds=0")


def test_an_exchanged_link_never_brings_the_machine_into_a_pod(site: Site) -> None:
    ann = site.ann
    claim, racer = make_claim(ann), unique("racer")
    volumes = mount_claim(claim)
    script = f"cd /data && mkdir swap && touch swap/marker && ln -s /proc evil && cat > x.py <<'E'\n{EXCHANGE}\nE\n"
    script += "exec python3 x.py swap evil ready stop"
    everything = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    ann.start_pod(racer, script, volumes=volumes, container=everything)
    try:
        wait = "until [ -e /data/ready ]; do sleep 0.02; done"
        ann.run_pod(unique("wait"), wait, volumes=volumes, container=everything)
        outcomes = [
            run_to_some_end(ann, unique("victim"), LOOK, volumes=volumes, container=mount_all("swap"))
            for _ in range(ROUNDS)
        ]
        assert ann.kube.get(ann.path("pods", racer))["status"]["phase"] == "Running", "the race went on to the end"
    finally:
        ann.kube.delete(f"{ann.path('pods', racer)}?gracePeriodSeconds=0")
    assert not any("PROC" in outcome or "other" in outcome for outcome in outcomes), outcomes
    assert all("own" in outcome or "leads out of" in outcome for outcome in outcomes), outcomes


@pytest.mark.parametrize("target", ["/proc", "/etc", "../..", "/proc/1/root", "dir/../../.."])
def test_a_link_that_leads_out_is_refused_with_a_sentence(site: Site, target: str) -> None:
    ann = site.ann
    volumes = mount_claim(make_claim(ann))
    everything = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    ann.run_pod(unique("setup"), f"mkdir /data/dir; ln -s {target} /data/evil", volumes=volumes, container=everything)
    for sub_path in ("evil", "evil/new"):
        said = run_to_some_end(ann, unique("victim"), "ls /m/0", volumes=volumes, container=mount_all(sub_path))
        assert "leads out of the volume" in said


def test_a_link_within_the_volume_is_followed_there(site: Site) -> None:
    """As Kubernetes does it; ConfigMaps with a subPath depend on it."""
    ann = site.ann
    volumes = mount_claim(make_claim(ann))
    everything = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "mkdir -p /data/runs/7; touch /data/runs/7/marker; ln -s runs/7 /data/latest"
    ann.run_pod(unique("setup"), script, volumes=volumes, container=everything)
    said = ann.run_pod(unique("user"), LOOK, volumes=volumes, container=mount_all("latest"))
    assert said.split() == ["own"] * COUNT


def test_a_working_directory_in_a_volume_makes_nothing_on_the_machine(site: Site, tmp_path: Path) -> None:
    """The directory is made by root, in the Pod's processes: /proc/1/root is the machine for it."""
    ann = site.ann
    volumes = mount_claim(make_claim(ann))
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    ann.run_pod(unique("setup"), f"ln -s /proc/1/root{tmp_path} /data/evil", volumes=volumes, container=mounts)
    container = {**mounts, "workingDir": "/data/evil/made"}
    run_to_some_end(ann, unique("victim"), "pwd", volumes=volumes, container=container)
    assert list(tmp_path.iterdir()) == []


def test_a_mount_point_in_a_volume_makes_nothing_on_the_machine(site: Site, tmp_path: Path) -> None:
    ann = site.ann
    volumes = [*mount_claim(make_claim(ann)), {"name": "empty", "emptyDir": {}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    setup = f"ln -s /proc/1/root{tmp_path} /data/evil"
    ann.run_pod(unique("setup"), setup, volumes=volumes, container={"volumeMounts": mounts})
    inner = {"name": "empty", "mountPath": "/data/evil/made"}
    container = {"volumeMounts": [*mounts, inner], "terminationMessagePath": "/data/evil/message"}
    run_to_some_end(ann, unique("victim"), "true", volumes=volumes, container=container)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", LEVELS)
def test_the_race_is_lost_at_every_level(folder: Path, level: str) -> None:
    """At the level of the shim: a program exchanges a directory and a link, others have it mounted 12 times."""

    async def test(sandboxes: Sandboxes) -> None:
        volume = sandboxes.root / "volume"
        (volume / "swap").mkdir(parents=True)
        (volume / "swap" / "marker").touch()
        os.symlink("/proc", volume / "evil")
        volume.chmod(0o777)
        racer = sandboxes.make_pod("racer", 0)
        script = f"cd /data; cat > /tmp/x.py <<'E'\n{EXCHANGE}\nE\nexec python3 /tmp/x.py swap evil ready stop"
        await sandboxes.start(racer, sandboxes.make_container(racer, script, mounts=(Mount("/data", str(volume)),)))
        while not (volume / "ready").exists():
            await asyncio.sleep(0.02)
        seen = [await run_victim(sandboxes, number, volume) for number in range(ROUNDS)]
        (volume / "stop").touch()
        ended = await sandboxes.wait_ended(racer.uid)
        assert ended.exited.code == 0, sandboxes.read_log(racer.uid)
        assert not any("PROC" in text or "other" in text for text in seen), seen
        assert all("own" in text or "leads out of its volume" in text for text in seen), seen

    run_sandboxed(folder, level, f"race-{level}", test)


async def run_victim(sandboxes: Sandboxes, number: int, volume: Path) -> str:
    pod = sandboxes.make_pod("victim", number, peers=ROUNDS)
    mounts = tuple(Mount(f"/m/{i}", str(volume), sub_path="swap") for i in range(COUNT))
    container: ContainerSpec = sandboxes.make_container(pod, LOOK, mounts=mounts)
    await sandboxes.start(pod, container)
    ended = await sandboxes.wait_ended(pod.uid)
    return sandboxes.read_log(pod.uid) + ended.exited.error


@pytest.mark.parametrize("level", LEVELS)
def test_a_race_for_a_mount_point_makes_nothing_on_the_machine(folder: Path, level: str) -> None:
    """The directory of a nested mount is a link to the machine's root at the moment when it is made."""

    async def test(sandboxes: Sandboxes) -> None:
        volume, outside = sandboxes.root / "volume", sandboxes.root / "outside"
        (volume / "swap").mkdir(parents=True)
        outside.mkdir()
        os.symlink(f"/proc/1/root{outside}", volume / "evil")
        for place in (volume, outside, volume / "swap"):
            place.chmod(0o777)
        racer = sandboxes.make_pod("racer", 0)
        script = f"cd /data; cat > /tmp/x.py <<'E'\n{EXCHANGE}\nE\nexec python3 /tmp/x.py swap evil ready stop"
        await sandboxes.start(racer, sandboxes.make_container(racer, script, mounts=(Mount("/data", str(volume)),)))
        while not (volume / "ready").exists():
            await asyncio.sleep(0.02)
        for number in range(ROUNDS):
            pod = sandboxes.make_pod("victim", number, peers=ROUNDS)
            inner = tuple(Mount(f"/data/swap/{number}-{i}", str(outside.parent / "x")) for i in range(40))
            (outside.parent / "x").mkdir(exist_ok=True)
            container = sandboxes.make_container(pod, "true", mounts=(Mount("/data", str(volume)), *inner))
            await sandboxes.start(pod, container)
            await sandboxes.wait_ended(pod.uid)
        (volume / "stop").touch()
        await sandboxes.wait_ended(racer.uid)
        assert list(outside.iterdir()) == []

    run_sandboxed(folder, level, f"point-{level}", test)
