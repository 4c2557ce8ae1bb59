"""The Node object of this machine: made when missing, its status set when the agent starts."""

from __future__ import annotations

import os
import platform
from datetime import datetime

from trainmaster import __version__
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES
from trainmaster.api.status import AlreadyExists
from trainmaster.client.contract import Client, PatchType
from trainmaster.kit.clock import format_time
from trainmaster.node.status import ADDRESS

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


async def register_node(client: Client, name: str, now: datetime) -> None:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}
    try:
        await client.create(NODES, node)
    except AlreadyExists:
        await client.patch(NODES, name, PatchType.MERGE, {"metadata": {"labels": labels}})
    body = {"status": build_node_status(name, now)}
    await client.patch(NODES, name, PatchType.MERGE, body, subresource="status")


def build_node_status(name: str, now: datetime) -> Object:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    capacity = {"cpu": str(len(os.sched_getaffinity(0))), "memory": f"{memory // 1024}Ki", "pods": "1000"}
    moment = format_time(now)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "NodeAgentReady",
        "message": "the node agent runs Pods as local processes (plain level)",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "bootID": "",
            "containerRuntimeVersion": f"process://{__version__}",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": "",
            "kubeletVersion": f"v{__version__}",
            "machineID": "",
            "operatingSystem": platform.system().lower(),
            "osImage": platform.platform(terse=True),
            "systemUUID": "",
        },
    }
