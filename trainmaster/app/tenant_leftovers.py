"""Finds data of a deleted tenant. While there is any, its name cannot be given to a new tenant.

Otherwise the new tenant would see the old records and outputs of jobs, get the volumes retained for its claims, and
have the permissions that others granted to its ServiceAccount.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainmaster.api.reading import list_items
from trainmaster.apiserver import stored
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.store.contract import Store
from trainmaster.tenancy.register import FindLeftovers

_BINDINGS = ("rbac.authorization.k8s.io/rolebindings", "rbac.authorization.k8s.io/clusterrolebindings")


def build_remains(store: Store, history: Path) -> FindLeftovers:
    async def find(name: str) -> str:
        return find_in_store(store, name) or await asyncio.to_thread(find_in_history, history, name)

    return find


def find_in_store(store: Store, name: str) -> str:
    if store.measure(name):
        return "objects in its namespace"
    for record in store.scan("persistentvolumes"):
        if PersistentVolume(stored.parse(record.value)).claim.get("namespace") == name:
            return "a volume of one of its claims"
    for bucket in _BINDINGS:
        for record in store.scan(bucket):
            subjects = list_items(stored.parse(record.value), "subjects")
            if any(entry.get("namespace") == name for entry in subjects):
                return "a role that was granted to it"
    return ""


def find_in_history(directory: Path, name: str) -> str:
    """Records, which are deleted together with their outputs, checkpoints and logs."""
    if not (directory / FILE).exists():
        return ""
    try:
        archive = Archive.open(directory, read_only=True)
        try:
            if archive.select(Filter(namespace=name, limit=1)):
                return "records of its jobs"
            opened = archive.list_open().values()
            return "jobs that have no record yet" if any(_get_namespace(job) == name for job in opened) else ""
        finally:
            archive.close()
    except ArchiveError as error:
        return f"perhaps records, but the history cannot be read: {error}"


def _get_namespace(job: dict[str, object]) -> str:
    metadata = job.get("metadata")
    return str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""
