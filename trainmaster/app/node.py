"""The Node of this machine in embedded mode, built from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from trainmaster.api.node_policy import read_node_policy
from trainmaster.app.home.folder import HomeError
from trainmaster.app.settings import NodeOptions
from trainmaster.client.contract import Client
from trainmaster.engine.events import Recorder
from trainmaster.kit.clock import Clock
from trainmaster.node.devices.gpus import Inventory
from trainmaster.node.host.hardware import read_hardware, read_health
from trainmaster.node.host.registration import NodeKeeper, NodeShape


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


@asynccontextmanager
async def running_keeper(
    client: Client, recorder: Recorder, clock: Clock, shape: NodeShape, home: Path
) -> AsyncIterator[NodeKeeper]:
    inventory = Inventory()
    try:
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
    finally:
        inventory.close()
