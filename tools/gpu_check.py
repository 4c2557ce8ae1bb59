"""Looks at the GPUs of this machine as the node does, leases them in a rehearsal, and runs one CUDA program.

    python tools/gpu_check.py [--home DIR]

Prints what NVML reports, what the Node would say, and which GPUs a gang would get. With torch it then starts a process
with the variables of a lease and multiplies two matrices on the GPU that it sees; with --home a whole server is started
there and a TrainJob that asks for one GPU runs on it. Exit status 1 when something is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from trainmaster.api.conditions import list_conditions
from trainmaster.api.devices import Device, devices_env, list_devices, render_lease
from trainmaster.api.labels import DEVICES
from trainmaster.api.meta import Object
from trainmaster.api.node_policy import NO_POLICY
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.client.contract import WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.node.devices.gpus import Inventory
from trainmaster.node.devices.nvml import Nvml, NvmlError
from trainmaster.node.host.hardware import read_hardware, read_health
from trainmaster.node.host.registration import NodeShape, build_node

PROGRAM = """
import os, torch
print("CUDA_VISIBLE_DEVICES", os.environ["CUDA_VISIBLE_DEVICES"], "-> torch sees", torch.cuda.device_count())
assert torch.cuda.device_count() == 1, "a lease of one GPU shows another number"
a = torch.randn(2048, 2048, device="cuda")
print(torch.cuda.get_device_name(0), "product of two matrices:", float((a @ a).norm()) > 0)
"""
TRAIN_JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "gpu-check"},
    "spec": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {
            "numNodes": 1,
            "command": ["python", "-c", PROGRAM],
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}},
        },
    },
}
_PATIENCE_SECONDS = 180


def show_library() -> bool:
    try:
        nvml = Nvml()
    except NvmlError as error:
        print(f"NVML: {error}")
        return False
    for gpu in nvml.list_gpus():
        print(
            f"NVML: {gpu.index} {gpu.uuid} {gpu.product}, {gpu.memory_mib} MiB, used by {list(gpu.pids)} {gpu.trouble}"
        )
    nvml.close()
    return True


def show_node() -> list[Device]:
    inventory = Inventory()
    found = inventory.read(None)
    inventory.close()
    health = read_health(Path.cwd())
    node = build_node(NodeShape(), read_hardware(), None, found.devices, NO_POLICY, datetime.now(UTC), health)
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key.startswith("nvidia.com")}
    print(f"Node: allocatable {json.dumps(node['status']['allocatable'])}")
    print(f"Node: labels {json.dumps(labels)}")
    return list_devices(node)


def rehearse(devices: list[Device]) -> dict[str, str] | None:
    """The variables that a Pod with one GPU would get."""
    free = [device for device in devices if device.is_free]
    for device in devices:
        if not device.is_free:
            print(f"lease: GPU {device.index} is not leased: {device.unhealthy or device.held}")
    if not free:
        print("lease: no GPU is free")
        return None
    spec: Object = {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    pod: Object = {"metadata": {"name": "p", "annotations": {DEVICES: render_lease(spec, free[-1:])}}, "spec": spec}
    variables = devices_env(pod, "node")
    print(f"lease: {json.dumps(variables)}")
    return variables


def compute(variables: dict[str, str]) -> bool:
    found = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    if found.returncode != 0:
        print("torch is not installed here: no CUDA program was run")
        return True
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **variables}, check=False)
    return done.returncode == 0


def run_job(home: str) -> bool:
    """Through a whole server, as a user would."""
    command = [sys.executable, "-m", "trainmaster"]
    environ = {**os.environ, "TRAINMASTER_HOME": home}
    subprocess.run([*command, "up", "--detach"], env=environ, check=True)
    try:
        return asyncio.run(_submit(Path(home) / "kubeconfig"))
    finally:
        subprocess.run([*command, "down", "--stop-jobs"], env=environ, check=False)


async def _submit(kubeconfig: Path) -> bool:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        await client.create(TRAIN_JOBS, TRAIN_JOB, "default")
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await _follow(client)
    finally:
        for pod in (await client.list(PODS, "default")).items:
            print(f"Pod {pod['metadata']['name']}: {pod['status'].get('phase')}, {pod['metadata'].get('annotations')}")
            async for piece in client.logs(pod["metadata"]["name"], "default"):
                print(piece.decode(errors="replace"), end="")
        await client.close()


async def _follow(client: HttpClient) -> bool:
    options = WatchOptions(field_selector="metadata.name=gpu-check")
    async with client.watch(TRAIN_JOBS, "default", options) as events:
        async for event in events:
            for condition in list_conditions(event.object):
                if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                    print(f"TrainJob: {condition['type']}: {condition.get('message', '')}")
                    return bool(condition["type"] == "Complete")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", default="", help="run a TrainJob on a server of this home too")
    options = parser.parse_args()
    is_there = show_library()
    variables = rehearse(show_node())
    is_well = is_there and variables is not None and compute(variables)
    if is_well and options.home:
        is_well = run_job(options.home)
    print("ok" if is_well else "NOT ok")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
