"""The Node object: true, complete, written only when something has changed, and shared with administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.unit.node.devices.fake_nvml import LOST, MISMATCH, XID, FakeGpu, FakeNvml, FakeUsers, make_inventory
from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.devices import Device, list_devices, render_lease
from trainmaster.api.labels import DEVICES
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS
from trainmaster.client.contract import PatchType
from trainmaster.engine.events import EventRecorder
from trainmaster.node.host.hardware import Hardware, NodeHealth, read_hardware, read_health
from trainmaster.node.host.registration import DISK_HOLD_SECONDS, LOOK_SECONDS, NodeKeeper, NodeShape
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

GIB = 1024**3
MACHINE = Hardware("amd64", "linux", "6.1", "Debian 12", "boot-1", "machine-1", 8000, 32 * GIB)
WELL = NodeHealth(100 * GIB, 50 * GIB, 16 * GIB, 300, 32768, "/data/home")


@dataclass
class Setting:
    """A machine that a test can change, and a keeper that looks at it."""

    cluster: Cluster
    shape: NodeShape = field(default_factory=NodeShape)
    library: FakeNvml = field(default_factory=FakeNvml)
    users: FakeUsers = field(default_factory=FakeUsers)
    hardware: Hardware = MACHINE
    health: NodeHealth = WELL
    keeper: NodeKeeper | None = None

    def start(self) -> None:
        """A new life of the control plane."""
        client = self.cluster.client
        self.keeper = NodeKeeper(
            client,
            EventRecorder(client, self.cluster.clock),
            self.cluster.clock,
            self.shape,
            inventory=make_inventory(self.library, self.users),
            hardware=self.hardware,
            read_health=lambda: self.health,
        )

    async def look(self) -> Object:
        if self.keeper is None:
            self.start()
        assert self.keeper is not None
        await self.cluster.clock.sleep(LOOK_SECONDS)
        await self.keeper.sync()
        return await self.cluster.client.get(NODES, "local")

    async def set_policy(self, **data: str) -> None:
        meta = {"name": "trainmaster-node", "namespace": "kubeflow-system"}
        policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        if self.cluster.store.get("configmaps", "kubeflow-system/trainmaster-node") is None:
            await self.cluster.client.create(CONFIG_MAPS, policy, "kubeflow-system")
        else:
            await self.cluster.client.update(CONFIG_MAPS, policy, "kubeflow-system")

    async def list_events(self) -> list[str]:
        return [f"{event['reason']}: {event['message']}" for event in (await self.cluster.client.list(EVENTS)).items]


def play(test: Callable[[Setting], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Setting(cluster))

    run_virtual(main(), limit=86_400)


def get_status(node: Object, kind: str) -> str:
    condition = find_condition(list_conditions(node), kind)
    return "" if condition is None else str(condition["status"])


def test_the_node_says_what_the_machine_is() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
        node = await setting.look()
        want = {"cpu": "8", "memory": "32Gi", "pods": "1k", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2"}
        assert node["status"]["capacity"] == want
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        labels = node["metadata"]["labels"]
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
        assert labels["nvidia.com/gpu.count"] == "2"
        for key in ("kubernetes.io/arch", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"):
            assert labels[key]
        assert get_status(node, "Ready") == "True"
        assert {get_status(node, f"{kind}Pressure") for kind in ("Disk", "Memory", "PID")} == {"False"}
        assert [device.id for device in list_devices(node)] == ["GPU-a", "GPU-b"]

    play(test)


def test_a_look_at_a_machine_on_which_nothing_has_changed_writes_nothing() -> None:
    async def test(setting: Setting) -> None:
        await setting.look()
        before = setting.cluster.store.revision
        await setting.look()
        assert setting.cluster.store.revision == before

    play(test)


def test_the_lease_is_renewed_and_the_heartbeat_is_rare() -> None:
    async def test(setting: Setting) -> None:
        node = await setting.look()
        first = await setting.cluster.client.get(LEASES, "local", "kube-node-lease")
        began = setting.cluster.store.revision
        for _ in range(60):
            node = await setting.look()
        second = await setting.cluster.client.get(LEASES, "local", "kube-node-lease")
        assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
        assert setting.cluster.store.revision - began <= 20 + 3, "ten minutes: 20 renewals and 2 heartbeats"
        assert get_status(node, "Ready") == "True"

    play(test)


def test_settings_go_over_what_is_found() -> None:
    async def test(setting: Setting) -> None:
        setting.shape = NodeShape(cpus=2.5, memory_mib=4096, gpus=3, labels={"team": "a"})
        node = await setting.look()
        allocatable = node["status"]["allocatable"]
        assert (allocatable["cpu"], allocatable["memory"]) == ("2500m", "4Gi")
        assert allocatable["nvidia.com/gpu"] == "3"
        assert node["metadata"]["labels"]["team"] == "a"

    play(test)


def test_cpus_are_overcommitted_and_nothing_else() -> None:
    async def test(setting: Setting) -> None:
        setting.shape = NodeShape(cpus=2.5, memory_mib=4096)
        plain = (await setting.look())["status"]
        setting.shape, setting.keeper = NodeShape(cpus=2.5, memory_mib=4096, overcommit=3), None
        shared = (await setting.look())["status"]
        assert shared["capacity"] == plain["capacity"]
        assert shared["allocatable"] == {**plain["allocatable"], "cpu": "7500m"}

    play(test)


def test_a_full_disk_keeps_new_pods_away_until_there_is_room_again() -> None:
    async def test(setting: Setting) -> None:
        await setting.look()
        setting.health = replace(WELL, disk_free_bytes=GIB // 2)
        node = await setting.look()
        assert get_status(node, "DiskPressure") == "True"
        assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
        text = "the disk of /data/home is nearly full: 510Mi free, 1Gi must stay free (setting node.min_free_disk_mib)"
        assert f"NodeHasDiskPressure: {text}" in await setting.list_events()
        setting.health = replace(WELL, disk_free_bytes=GIB + GIB // 10)
        assert get_status(await setting.look(), "DiskPressure") == "True", "a little more is not enough"
        setting.health = WELL
        assert get_status(await setting.look(), "DiskPressure") == "True", "what was evicted must not come back at once"
        await setting.cluster.clock.sleep(DISK_HOLD_SECONDS)
        node = await setting.look()
        assert get_status(node, "DiskPressure") == "False"
        assert not node["spec"].get("taints")

    play(test)


def test_a_disk_that_was_short_between_two_looks_is_said_too() -> None:
    async def test(setting: Setting) -> None:
        await setting.look()
        assert setting.keeper is not None
        async with setting.keeper.running():
            await setting.cluster.clock.sleep(1.5)
            setting.keeper.note_short_disk()
            await setting.cluster.clock.sleep(2)
            node = await setting.cluster.client.get(NODES, "local")
            assert get_status(node, "DiskPressure") == "True", "and not only with the next regular look"
        await setting.cluster.clock.sleep(DISK_HOLD_SECONDS)
        assert get_status(await setting.look(), "DiskPressure") == "False"

    play(test)


@pytest.mark.parametrize(
    ("health", "condition"),
    [
        (replace(WELL, memory_free_bytes=50 * 1024**2), "MemoryPressure"),
        (replace(WELL, processes=32000), "PIDPressure"),
    ],
)
def test_other_shortages_are_said_too(health: NodeHealth, condition: str) -> None:
    async def test(setting: Setting) -> None:
        setting.health = health
        node = await setting.look()
        assert get_status(node, condition) == "True"
        assert len(node["spec"]["taints"]) == 1

    play(test)


def test_what_others_put_on_the_node_stays() -> None:
    async def test(setting: Setting) -> None:
        await setting.look()
        client = setting.cluster.client
        taint = {"key": "mine", "effect": "NoSchedule"}
        patch = {"metadata": {"labels": {"rack": "7"}}, "spec": {"taints": [taint], "unschedulable": True}}
        await client.patch(NODES, "local", PatchType.MERGE, patch)
        more = {"status": {"allocatable": {"example.com/license": "3"}}}
        await client.patch(NODES, "local", PatchType.MERGE, more, subresource="status")
        setting.health = replace(WELL, disk_free_bytes=0)
        await setting.look()
        setting.health = WELL
        await setting.cluster.clock.sleep(DISK_HOLD_SECONDS)
        node = await setting.look()
        assert node["metadata"]["labels"]["rack"] == "7"
        assert node["spec"] == {"taints": [taint], "unschedulable": True}
        assert node["status"]["allocatable"]["example.com/license"] == "3"

    play(test)


def test_the_policy_puts_labels_on_and_takes_them_off() -> None:
    async def test(setting: Setting) -> None:
        zone = "topology.kubernetes.io/zone"
        await setting.set_policy(labels=f"{zone}=eu-1a\n# why\nteam=a\n", gpus="4")
        node = await setting.look()
        assert (node["metadata"]["labels"][zone], node["metadata"]["labels"]["team"]) == ("eu-1a", "a")
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        await setting.set_policy(labels="")
        node = await setting.look()
        assert node["metadata"]["labels"][zone] == "local"
        assert "team" not in node["metadata"]["labels"]
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "0"

    play(test)


def test_what_makes_no_sense_in_the_policy_is_said_once_and_changes_nothing() -> None:
    async def test(setting: Setting) -> None:
        await setting.set_policy(labels="good=1\nno sign\n-bad-=2", selectors="maybe", gpus="many", colour="red")
        node = await setting.look()
        assert node["metadata"]["labels"]["good"] == "1"
        said = await setting.list_events()
        for text in ("there is no key colour", "'no sign': write key=value", "'-bad-=2'", "'maybe' must be", "'many'"):
            assert any(text in line for line in said), text
        count = setting.cluster.store.revision
        await setting.look()
        assert setting.cluster.store.revision == count

    play(test)


def test_a_broken_gpu_stays_out_until_the_machine_is_restarted() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
        await setting.look()
        setting.library.gpus[1].error = LOST
        node = await setting.look()
        assert (node["status"]["capacity"]["nvidia.com/gpu"], node["status"]["allocatable"]["nvidia.com/gpu"]) == (
            "2",
            "1",
        )
        assert any(line.startswith("UnhealthyGPU: GPU 1 (GPU-b)") for line in await setting.list_events())
        setting.library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
        setting.start()
        assert (await setting.look())["status"]["allocatable"]["nvidia.com/gpu"] == "1"
        setting.hardware = replace(MACHINE, boot_id="boot-2")
        setting.start()
        assert (await setting.look())["status"]["allocatable"]["nvidia.com/gpu"] == "2"

    play(test)


async def add_pod(setting: Setting, name: str, *gpus: str) -> tuple[str, str, str]:
    spec = {"nodeName": "local", "containers": [{"name": "main", "image": "x"}]}
    lease = render_lease({"containers": [ask_gpus("main", len(gpus))]}, [Device(0, id_) for id_ in gpus])
    meta = {"name": name, "namespace": "default", "annotations": {DEVICES: lease}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return "default", name, (await setting.cluster.client.create(PODS, pod, "default"))["metadata"]["uid"]


def ask_gpus(name: str, count: int) -> Object:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(count)}}}


def test_a_gpu_is_free_at_once_when_its_pod_ends() -> None:
    """The Node says nothing about processes of the Pod that has the lease, so nothing is out of date at its end."""

    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a", pids=[42]))
        setting.users.pods[42] = await add_pod(setting, "train", "GPU-a")
        assert [device.is_free for device in list_devices(await setting.look())] == [True]

    play(test)


def test_a_gpu_is_held_by_a_pod_that_has_no_lease_on_it() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a", pids=[42]), FakeGpu("GPU-b", pids=[43]))
        setting.users.pods[42] = await add_pod(setting, "greedy", "GPU-b")
        setting.users.pods[43] = "default", "gone", "uid-gone"
        texts = [device.held for device in list_devices(await setting.look())]
        assert texts == [
            "is used by process 42 of Pod default/greedy, which has no lease on it",
            "is used by process 43 of Pod default/gone, which has no lease on it",
        ]
        setting.users.ended = {42, 43}
        assert [device.is_free for device in list_devices(await setting.look())] == [True, True]

    play(test)


def test_the_end_of_a_process_that_holds_a_gpu_is_noticed_within_seconds() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a", pids=[42]))
        setting.start()
        assert setting.keeper is not None
        async with setting.keeper.running():
            assert list_devices(await setting.cluster.client.get(NODES, "local"))[0].held
            setting.users.ended = {42}
            await setting.cluster.clock.sleep(1.5)
            assert list_devices(await setting.cluster.client.get(NODES, "local"))[0].is_free

    play(test)


def test_a_pod_is_told_that_its_gpu_fell_off_the_bus() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
        await add_pod(setting, "train", "GPU-b")
        await add_pod(setting, "other", "GPU-a")
        await setting.look()
        setting.library.events = [(1, XID, 79)]
        await setting.look()
        await setting.look()
        events = (await setting.cluster.client.list(EVENTS)).items
        said = [event["involvedObject"]["name"] for event in events if event["reason"] == "UnhealthyGPU"]
        assert sorted(said) == ["local", "train"]

    play(test)


def test_gpus_that_cannot_be_read_are_kept_and_reported_once() -> None:
    async def test(setting: Setting) -> None:
        setting.library = FakeNvml(FakeGpu("GPU-a"))
        await setting.look()
        setting.library = FakeNvml(start=MISMATCH)
        setting.start()
        for _ in range(3):
            node = await setting.look()
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
        assert list_devices(node)[0].held.startswith("cannot be checked: NVML cannot be used")
        said = [line for line in await setting.list_events() if line.startswith("UnknownGPUs")]
        assert len(said) == 1 and "version mismatch" in said[0]

    play(test)


def test_a_node_that_somebody_deletes_comes_back() -> None:
    async def test(setting: Setting) -> None:
        first = await setting.look()
        await setting.cluster.client.delete(NODES, "local")
        second = await setting.look()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert get_status(second, "Ready") == "True"

    play(test)


def test_this_machine_can_be_read() -> None:
    found, health = read_hardware(), read_health(Path("/"))
    assert found.cpus_milli >= 100 and found.memory_bytes > 0 and found.architecture and found.kernel
    assert 0 <= health.disk_free_bytes <= health.disk_bytes
    assert 0 < health.processes < health.processes_most
