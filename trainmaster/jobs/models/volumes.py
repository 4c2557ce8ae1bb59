"""A PersistentVolume and its claim: their binding, sizes and access modes."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.storage import DRIVER
from trainmaster.jobs.models.objects import ObjectModel


class StorageModel(ObjectModel):
    """Properties that volumes and claims share."""

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
        """ "" means no class; a claim without the field has not been assigned a default yet."""
        return str(self.spec.get("storageClassName") or "")


class PersistentVolume(StorageModel):
    __slots__ = ()

    @property
    def claim(self) -> Fields:
        """`spec.claimRef`: the claim that it is bound to; empty if there is none."""
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
        """Whether it is a directory in the home's `volumes`."""
        return self.csi.get("driver") == DRIVER

    @property
    def handle(self) -> str:
        """The name of its directory, if it is ours."""
        return str(self.csi.get("volumeHandle") or "")

    @property
    def is_deleted_with_object(self) -> bool:
        """Whether its content is deleted with the object."""
        return bool(self.spec.get("persistentVolumeReclaimPolicy") == "Delete")


class PersistentVolumeClaim(StorageModel):
    __slots__ = ()

    @property
    def volume(self) -> str:
        """The name of the volume that it has or requests; "" for any."""
        return str(self.spec.get("volumeName") or "")

    @property
    def requests(self) -> Fields:
        resources: Fields = self.spec.get("resources") or NOTHING
        requests: Fields = resources.get("requests") or NOTHING
        return requests

    @property
    def size(self) -> str:
        """The size of its volume, or what it asks for until it has one."""
        capacity: Fields = self.status.get("capacity") or NOTHING
        return str(capacity.get("storage") or self.requests.get("storage", "0"))
