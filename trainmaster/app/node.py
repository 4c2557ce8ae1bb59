"""The Node of this machine in embedded mode, built from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from trainmaster.api.meta import Object
from trainmaster.api.node_policy import NodePolicy, read_node_policy
from trainmaster.app.home.folder import HomeError
from trainmaster.app.settings import NodeOptions
from trainmaster.client.contract import Client
from trainmaster.engine.events import Recorder
from trainmaster.kit.clock import Clock
from trainmaster.node.devices.gpus import Inventory
from trainmaster.node.devices.reader import GpuReader
from trainmaster.node.devices.users import GpuUsers
from trainmaster.node.host.hardware import read_hardware, read_health
from trainmaster.node.host.registration import NodeKeeper, NodeShape, build_node


def build_shape(settings: NodeOptions, isolation: str) -> NodeShape:
    """HomeError for an invalid label."""
    read = read_node_policy({"data": {"labels": "\n".join(settings.labels)}})
    if read.problems:
        raise HomeError(f"setting node.{read.problems[0]}")
    return NodeShape(
        cpus=settings.cpus or None,
        overcommit=settings.overcommit,
        memory_mib=settings.memory_mib or None,
        gpus=settings.gpus or None,
        pods=settings.pods,
        min_free_disk_mib=settings.min_free_disk_mib,
        labels=read.labels,
        isolation=isolation,
    )


def build_own_node(settings: NodeOptions, home: Path, now: datetime) -> Object:
    """The Node that a server of this home would register, which need not exist yet."""
    folder = next(path for path in (home, *home.parents) if path.exists())
    inventory = Inventory(GpuReader())
    try:
        devices = inventory.read(settings.gpus or None).devices
    finally:
        inventory.close()
    return build_node(build_shape(settings, ""), read_hardware(), None, devices, NodePolicy(), now, read_health(folder))


def open_inventory(pods: Path) -> Inventory:
    """Starts the program that reads GPUs. `pods`: the directory of this server's Pods."""
    return Inventory(GpuReader(), GpuUsers(pods))


@asynccontextmanager
async def running_keeper(
    client: Client, recorder: Recorder, clock: Clock, shape: NodeShape, home: Path, inventory: Inventory
) -> AsyncIterator[NodeKeeper]:
    keeper = NodeKeeper(
        client,
        recorder,
        clock,
        shape,
        inventory=inventory,
        hardware=read_hardware(),
        read_health=partial(read_health, home),
    )
    async with keeper.running():
        yield keeper
