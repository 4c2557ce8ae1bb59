"""Sends manifests to a server: training jobs are created, other objects applied. Used by `submit` and the REST API."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainmaster.api import resources
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.jobs.kinds import TRAINING_KINDS

_NAMESPACED = {
    **{kind: model.gvr for kind, model in TRAINING_KINDS.items()},
    "TrainingRuntime": resources.TRAINING_RUNTIMES,
    "JobSet": resources.JOB_SETS,
    "Job": resources.JOBS,
    "Pod": resources.PODS,
    "Service": resources.SERVICES,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "ConfigMap": resources.CONFIG_MAPS,
    "Secret": resources.SECRETS,
    "PersistentVolumeClaim": resources.PERSISTENT_VOLUME_CLAIMS,
}
_CLUSTER_WIDE = {
    "ClusterTrainingRuntime": resources.CLUSTER_TRAINING_RUNTIMES,
    "Namespace": resources.NAMESPACES,
    "PersistentVolume": resources.PERSISTENT_VOLUMES,
}
_WEBHOOK = re.compile(r'^admission webhook "[^"]*" denied the request: ')
"""The prefix of a webhook's refusal, which is left out of our message."""
DEPENDENT = "not checked: it needs an object of this submission"


@dataclass(frozen=True, slots=True)
class ObjectRefusal:
    """Why an object was refused, for its author."""

    summary: str
    """"" if `fields` says everything."""
    fields: Sequence[tuple[str, str]]
    """(path, message)"""
    hint: str = ""
    exists: bool = False
    """There is an object of that name already."""


def find_collection(version: str, kind: str) -> tuple[GVR, bool] | None:
    """(collection, whether it is namespaced) of a kind that jobs consist of; None for all others."""
    for table, namespaced in ((_NAMESPACED, True), (_CLUSTER_WIDE, False)):
        gvr = table.get(kind)
        if gvr is not None and gvr.api_version == version:
            return gvr, namespaced
    return None


async def send_object(
    client: Client, gvr: GVR, obj: Object, namespace: str, *, manager: str, dry_run: bool
) -> tuple[Object, str]:
    """The stored object, and what was done ("created", for example)."""
    options = WriteOptions(dry_run=dry_run, field_manager=manager, field_validation="Strict")
    if obj["kind"] in TRAINING_KINDS or not obj["metadata"].get("name"):
        return await client.create(gvr, obj, namespace, options=options), "created"
    name = obj["metadata"]["name"]
    try:
        before = (await client.get(gvr, name, namespace))["metadata"].get("resourceVersion")
    except NotFound:
        before = None
    stored = await client.patch(gvr, name, PatchType.APPLY, obj, namespace, options=options)
    if before is None:
        return stored, "created"
    return stored, "unchanged" if stored["metadata"].get("resourceVersion") == before else "changed"


def is_dependent(error: StatusError, planned: Collection[str]) -> bool:
    """Whether an error of a dry run is expected, because the object refers to another one of the same submission.
    `planned`: the names of these."""
    return any(name and f'"{name}"' in error.message and "not found" in error.message for name in planned)


def describe_refusal(error: StatusError) -> ObjectRefusal:
    fields: list[tuple[str, str]] = []
    summary = _WEBHOOK.sub("", error.message)
    if error.causes and error.code == 422:
        summary = ""
        fields = [(cause.get("field") or "(object)", cause.get("message", "")) for cause in error.causes]
    hint = ""
    if isinstance(error, Conflict) and not isinstance(error, AlreadyExists):
        hint = "somebody else set these fields: `kubectl apply` decides whose they are"
    elif "untimeRef" in error.message and "not found" in error.message:
        hint = "`trainmaster runtimes` lists those that exist"
    return ObjectRefusal(summary, fields, hint, isinstance(error, AlreadyExists))
