"""Constants of our storage class, shared by the claim binder, the node and the installer.

A volume of the class is a directory of the home. Its PersistentVolume names no path, because the home may move: the
handle is the directory's name.
"""

from __future__ import annotations

from trainmaster.api.meta import Object

DRIVER = "local-directory.trainmaster.dev"
STORAGE_CLASS = "local-directory"
PROVISIONER = "trainmaster.dev/local-directory"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
FINALIZER = "trainmaster.dev/volume-directory"
"""On our PersistentVolumes: the node removes the directory first, then this."""


def build_storage_class() -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }
