"""Removes the directories of PersistentVolumes that are being deleted, and then their finalizers.

A volume of our class has a finalizer until its directory is gone. The directory is renamed first, so that it cannot be
mounted while it is being removed; after a crash the next start finds the object and continues.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from trainmaster.api.meta import Object
from trainmaster.api.resources import PERSISTENT_VOLUMES
from trainmaster.api.status import NotFound
from trainmaster.api.storage import FINALIZER
from trainmaster.client.contract import Client, PatchType, WatchEvent, WriteOptions
from trainmaster.client.follow import follow
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.kit.clock import Clock
from trainmaster.node.volumes.claim import get_directory
from trainmaster.node.volumes.contract import VolumeError
from trainmaster.shim.trees import remove_tree

log = logging.getLogger(__name__)
_OPTIONS = WriteOptions(field_manager="trainmaster-node")


class Reclaimer:
    def __init__(self, client: Client, clock: Clock, root: Path) -> None:
        self._client = client
        self._clock = clock
        self._root = root

    async def follow(self) -> None:
        async def begin(items: list[Object]) -> None:
            for item in items:
                await self.reclaim(PersistentVolume(item))

        async def change(event: WatchEvent) -> None:
            if event.type != "DELETED":
                await self.reclaim(PersistentVolume(event.object))

        await follow(self._client, self._clock, PERSISTENT_VOLUMES, begin, change)

    async def reclaim(self, volume: PersistentVolume) -> None:
        if not volume.is_deleting or FINALIZER not in volume.finalizers or not volume.is_ours:
            return
        if volume.is_deleted_with_object:
            try:
                directory = get_directory(self._root, volume.handle)
            except VolumeError as error:
                log.warning("directory not removed", extra={"volume": volume.name, "error": str(error)})
            else:
                await asyncio.get_running_loop().run_in_executor(None, _remove, directory)
                log.info("volume removed", extra={"action": "volumes.removed", "volume": volume.name})
        left = [name for name in volume.finalizers if name != FINALIZER]
        meta = {**volume.head, "finalizers": left or None}
        patch = {"metadata": meta}
        try:
            await self._client.patch(PERSISTENT_VOLUMES, volume.name, PatchType.MERGE, patch, options=_OPTIONS)
        except NotFound:
            return


def _remove(directory: Path) -> None:
    going = directory.with_name(f".going-{directory.name}")
    if directory.exists() and not going.exists():
        directory.rename(going)
    remove_tree(going)
    remove_tree(directory)
