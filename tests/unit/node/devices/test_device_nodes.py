"""The nodes of leased GPUs, on a directory that stands for /dev."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.devices import Device, devices_env, render_lease
from trainmaster.api.labels import DEVICES
from trainmaster.node.devices.device_nodes import list_nodes, renumber

pytestmark = pytest.mark.unit


def make_pod(lease: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": {DEVICES: lease}}, "spec": {"containers": [{"name": "node"}]}}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Path]:
    dev, listing = tmp_path / "dev", tmp_path / "gpus"
    (dev / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    for bus, uuid, minor in (("01", "GPU-a", 1), ("02", "GPU-b", 0)):
        (listing / bus).mkdir(parents=True)
        text = f"Model: \t X\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (listing / bus / "information").write_text(text)
    return {"dev": dev, "driver": tmp_path}


def test_a_lease_becomes_the_node_that_the_driver_numbers_so(machine: dict[str, Path]) -> None:
    pod = make_pod('{"node":[{"index":0,"id":"GPU-a"}]}')
    nodes = list_nodes(pod, "node", **machine)
    assert nodes == ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert renumber(nodes) == {"CUDA_VISIBLE_DEVICES": "0"}
    assert list_nodes(pod, "other", **machine) == ()


def test_two_leases_are_counted_from_zero_inside(machine: dict[str, Path]) -> None:
    pod = make_pod('{"node":[{"index":0,"id":"GPU-a"},{"index":1,"id":"GPU-b"}]}')
    assert renumber(list_nodes(pod, "node", **machine)) == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_without_the_drivers_listing_the_index_counts(machine: dict[str, Path], tmp_path: Path) -> None:
    pod = make_pod('{"node":[{"index":1,"id":"GPU-x"}]}')
    assert list_nodes(pod, "node", dev=machine["dev"], driver=tmp_path / "none")[0] == "/dev/nvidia1"


def test_declared_gpus_have_no_nodes(machine: dict[str, Path]) -> None:
    nodes = list_nodes(make_pod('{"node":[{"index":0,"id":"declared-0"}]}'), "node", **machine)
    assert nodes == ()
    assert renumber(nodes) == {}


def test_a_mig_device_has_its_gpu_and_its_instances_and_no_others(machine: dict[str, Path]) -> None:
    for number in (21, 22, 30):
        (machine["dev"] / f"nvidia-caps/nvidia-cap{number}").touch()
    place = machine["driver"] / "capabilities/gpu0/mig/gi3"
    for path, number in ((place / "access", 21), (place / "ci0/access", 22)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    lease = [Device(1, "MIG-1", mig="GPU-b/3/0")]
    spec = {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    pod = make_pod(render_lease(spec, lease))
    nodes = list_nodes(pod, "node", **machine)
    caps = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert nodes == ("/dev/nvidia0", *caps, "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert renumber(nodes) == {}
    assert devices_env(pod, "node")["CUDA_VISIBLE_DEVICES"] == "MIG-1"


@pytest.mark.parametrize("mig", ["GPU-b/../../sda", "GPU-b", "/", "GPU-b/3/0/1"])
def test_a_lease_that_makes_no_sense_opens_nothing_else(machine: dict[str, Path], mig: str) -> None:
    pod = make_pod(json.dumps({"node": [{"index": 1, "id": "MIG-1", "mig": mig}]}))
    assert {node.rstrip("01") for node in list_nodes(pod, "node", **machine)} <= {
        "/dev/nvidia",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    }
