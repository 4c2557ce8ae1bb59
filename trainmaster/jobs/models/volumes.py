"""A PersistentVolume and a claim of one: who has whom, how large they are, which modes they allow."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.storage import DRIVER
from trainmaster.jobs.models.objects import ObjectModel


class StorageModel(ObjectModel):
    """What a volume offers and a claim asks for in the same words."""

    __slots__ = ()

    @property
    def phase(self) -> str:
        """ "" before its controller has seen it."""
        return str(self.status.get("phase", ""))

    @property
    def access_modes(self) -> Sequence[str]:
        return self.spec.get("accessModes") or ()

    @property
    def volume_mode(self) -> str:
        return str(self.spec.get("volumeMode", "Filesystem"))

    @property
    def storage_class(self) -> str:
        """ "" is none; of a claim that names none the default one has not been decided yet."""
        return str(self.spec.get("storageClassName") or "")


class PersistentVolume(StorageModel):
    __slots__ = ()

    @property
    def claim(self) -> Fields:
        """`spec.claimRef`: whose it is; empty when nobody has it."""
        reference: Fields = self.spec.get("claimRef") or NOTHING
        return reference

    @property
    def capacity(self) -> Fields:
        capacity: Fields = self.spec.get("capacity") or NOTHING
        return capacity

    @property
    def csi(self) -> Fields:
        csi: Fields = self.spec.get("csi") or NOTHING
        return csi

    @property
    def is_ours(self) -> bool:
        """A directory below the home's `volumes`."""
        return self.csi.get("driver") == DRIVER

    @property
    def handle(self) -> str:
        """Of one that is ours: the name of its directory."""
        return str(self.csi.get("volumeHandle") or "")

    @property
    def is_deleted_with_object(self) -> bool:
        """What it holds goes when its object does."""
        return bool(self.spec.get("persistentVolumeReclaimPolicy") == "Delete")


class PersistentVolumeClaim(StorageModel):
    __slots__ = ()

    @property
    def volume(self) -> str:
        """The name of the volume that it has or asks for; "" for any."""
        return str(self.spec.get("volumeName") or "")

    @property
    def requests(self) -> Fields:
        resources: Fields = self.spec.get("resources") or NOTHING
        requests: Fields = resources.get("requests") or NOTHING
        return requests
