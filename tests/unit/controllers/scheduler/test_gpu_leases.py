"""GPUs: each leased to one Pod at a time, by an annotation, and only those that are in order."""

from __future__ import annotations

import pytest

from tests.unit.controllers.scheduler.stage import Stage
from trainmaster.api.devices import Device, devices_env, list_devices, list_leased, render_devices, render_lease
from trainmaster.api.labels import DEVICES
from trainmaster.api.resources import NODES

pytestmark = pytest.mark.unit


def test_every_pod_of_a_gang_gets_gpus_of_its_own() -> None:
    stage = Stage(gpus=4)
    names = stage.add_gang("a", 2, gpu="2")
    stage.look()
    assert sorted(stage.list_leases(*names)) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert len(stage.list_leases(names[0])) == 2


def test_a_gpu_is_leased_again_when_its_pod_has_ended_and_not_before() -> None:
    stage = Stage(gpus=1)
    stage.add_pod("a", gpu="1")
    stage.add_pod("b", gpu="1")
    stage.look()
    assert not stage.is_bound("b")
    stage.end("a")
    stage.look()
    assert stage.list_leases("b") == ["GPU-0"]


def test_a_gpu_that_a_foreign_process_uses_is_not_leased_and_that_is_said() -> None:
    stage = Stage(
        devices=[
            Device(0, "GPU-0", held="is used by process 4242 (python) of bob, which belongs to no job"),
            Device(1, "GPU-1"),
        ]
    )
    stage.add_pod("a", gpu="1")
    stage.add_pod("b", gpu="1")
    stage.look()
    assert stage.list_leases("a") == ["GPU-1"]
    assert stage.get_sentence("b") == (
        "waiting for 1 GPU: 0 of 2 free; GPU 0 is used by process 4242 (python) of bob, which belongs to no job; "
        "first in the queue; starts when default/a ends"
    )
    free = render_devices([Device(0, "GPU-0"), Device(1, "GPU-1")])
    stage.merge(NODES, "local", {"metadata": {"annotations": {DEVICES: free}}}, "")
    stage.look()
    assert stage.list_leases("b") == ["GPU-0"]


def test_a_gpu_that_is_not_healthy_is_not_leased() -> None:
    stage = Stage(devices=[Device(0, "GPU-0", unhealthy="Xid 79"), Device(1, "GPU-1")])
    stage.add_pod("a", gpu="1")
    stage.add_pod("b", gpu="2")
    stage.look()
    assert stage.list_leases("a") == ["GPU-1"]
    assert stage.get_sentence("b") == "Pod b waits: it asks for 2 GPUs, node local has 1: ask for less"


def test_a_pod_whose_gpu_is_used_by_its_own_process_keeps_the_count_right() -> None:
    """What the machine sees on a leased GPU is the Pod itself."""
    stage = Stage(devices=[Device(0, "GPU-0"), Device(1, "GPU-1")])
    stage.add_pod("a", gpu="1")
    stage.look()
    seen = render_devices([Device(0, "GPU-0", held="process 7 (python)"), Device(1, "GPU-1")])
    stage.merge(NODES, "local", {"metadata": {"annotations": {DEVICES: seen}}}, "")
    stage.add_pod("b", gpu="1")
    stage.look()
    assert stage.list_leases("b") == ["GPU-1"]


def test_gpus_that_are_only_counted_are_leased_by_number() -> None:
    stage = Stage(gpus=0)
    patch = {"metadata": {"annotations": None}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}}
    stage.merge(NODES, "local", patch, "")
    stage.add_pod("a", gpu="2")
    stage.look()
    assert stage.list_leases("a") == ["declared-0", "declared-1"]


def ask(name: str, count: int, **fields: str) -> dict[str, object]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(count)}}, **fields}


def test_containers_share_out_what_a_pod_was_given() -> None:
    spec = {
        "initContainers": [ask("warm", 2), ask("side", 1, restartPolicy="Always")],
        "containers": [ask("main", 2), {"name": "quiet"}],
    }
    devices = [Device(4, "GPU-a"), Device(5, "GPU-b"), Device(7, "GPU-c")]
    pod = {"metadata": {"name": "p", "annotations": {DEVICES: render_lease(spec, devices)}}, "spec": spec}
    assert list_leased(pod) == ["GPU-a", "GPU-b", "GPU-c"]
    assert devices_env(pod, "main") == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "4,5",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }
    assert devices_env(pod, "side")["CUDA_VISIBLE_DEVICES"] == "7"
    assert devices_env(pod, "warm")["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert devices_env(pod)["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b,GPU-c"
    assert devices_env(pod, "quiet") == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize("text", ["", "[]", "{", "7", '{"main": 3}', '{"main": [3]}', "null"])
def test_an_annotation_that_makes_no_sense_leases_nothing(text: str) -> None:
    pod = {"metadata": {"name": "p", "annotations": {DEVICES: text}}, "spec": {}}
    assert list_leased(pod) == []
    assert devices_env(pod, "main")["CUDA_VISIBLE_DEVICES"] == ""


def test_devices_of_a_node_are_read_back_as_written() -> None:
    devices = [Device(0, "GPU-a", "H200", 143771, "Xid 79", "process 3"), Device(1, "GPU-b")]
    node = {"metadata": {"name": "local", "annotations": {DEVICES: render_devices(devices)}}}
    assert list_devices(node) == devices
