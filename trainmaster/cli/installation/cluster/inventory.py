"""The record of an installation: the ConfigMap `trainmaster-installation` in its namespace.

It is written before the first object is, with all objects of the old and of the new version. So whatever is
interrupted, each object that was created is known to the next upgrade or uninstallation. Two people who change an
installation at the same time are noticed, because it is written with its resourceVersion.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import yaml

from trainmaster.api.labels import INSTALLATION
from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.cli import exits
from trainmaster.cli.installation.cluster.objects import MANAGED_BY, OURS, ObjectReference, read_record, to_record
from trainmaster.client.contract import Client, WriteOptions

NAME = "trainmaster-installation"
FIELD_MANAGER = "trainmaster"


@dataclass(frozen=True, slots=True)
class InstallationInventory:
    version: str
    """Of Trainmaster."""
    objects: tuple[ObjectReference, ...]
    """In the order in which they are applied."""
    values: Object = field(default_factory=dict)
    """As the user gave them."""
    is_complete: bool = False
    """All objects are there, and no others."""
    resource_version: str = ""
    """Empty if it is not stored yet."""


def unite(old: Sequence[ObjectReference], new: Sequence[ObjectReference]) -> tuple[ObjectReference, ...]:
    """All of them, first those that only the old version has."""
    places = {one.place for one in new}
    return (*(one for one in old if one.place not in places), *new)


def build_config_map(inventory: InstallationInventory, namespace: str) -> Object:
    meta = {"name": NAME, "namespace": namespace, "labels": {MANAGED_BY: OURS, INSTALLATION: namespace}}
    if inventory.resource_version:
        meta["resourceVersion"] = inventory.resource_version
    data = {
        "version": inventory.version,
        "complete": json.dumps(inventory.is_complete),
        "values.yaml": yaml.safe_dump(inventory.values, sort_keys=False, allow_unicode=True),
        "objects.json": json.dumps([to_record(one) for one in inventory.objects]),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def read_config_map(found: Fields) -> InstallationInventory:
    """Failure if somebody has changed it so that it cannot be read."""
    try:
        data = found["data"]
        return InstallationInventory(
            version=data["version"],
            objects=tuple(read_record(one) for one in json.loads(data["objects.json"])),
            values=dict(yaml.safe_load(data["values.yaml"])),
            is_complete=json.loads(data["complete"]),
            resource_version=found["metadata"]["resourceVersion"],
        )
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        place = found["metadata"]["namespace"]
        text = f"ConfigMap {place}/{NAME}, the record of the installation, cannot be read ({error!r})"
        raise exits.Failure(f"{text}: delete it and install again, which takes over what is there") from None


async def find_inventory(client: Client, namespace: str) -> InstallationInventory | None:
    try:
        return read_config_map(await client.get(CONFIG_MAPS, NAME, namespace))
    except NotFound:
        return None


async def store_inventory(client: Client, inventory: InstallationInventory, namespace: str) -> InstallationInventory:
    """Creates or replaces it. Failure if somebody else was quicker."""
    wanted, options = build_config_map(inventory, namespace), WriteOptions(field_manager=FIELD_MANAGER)
    try:
        if inventory.resource_version:
            stored = await client.update(CONFIG_MAPS, wanted, namespace, options=options)
        else:
            stored = await client.create(CONFIG_MAPS, wanted, namespace, options=options)
    except (AlreadyExists, Conflict):
        text = f"somebody else is changing the installation in {namespace} right now"
        raise exits.Failure(f"{text}: look at it with `kubectl get configmap {NAME} -n {namespace}`") from None
    return replace(inventory, resource_version=stored["metadata"]["resourceVersion"])
