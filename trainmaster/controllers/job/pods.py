"""The Pods of an Indexed Job: name, labels, host name, completion index.

The name's suffix is derived from (Job uid, index, attempt): a pass that does not see a Pod which exists already
collides with it (AlreadyExists) instead of making a second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.controllers.ownership import build_owner_reference

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
"""A Pod name is a DNS label of at most 63 characters, five of which are the suffix."""


def build_pod_name(job: Object, index: int, attempt: int) -> str:
    return build_prefix(job["metadata"]["name"], index) + _derive_suffix(job["metadata"]["uid"], index, attempt)


def build_prefix(job_name: str, index: int) -> str:
    tail = f"-{index}-"
    return job_name[: _LONGEST_PREFIX - len(tail)] + tail


def _derive_suffix(uid: str, index: int, attempt: int) -> str:
    number = int.from_bytes(hashlib.sha256(f"{uid}/{index}/{attempt}".encode()).digest()[:8])
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)


def find_index(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(labels.COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def get_attempt(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(labels.POD_ATTEMPT, "0"))


def build_pod(job: Object, index: int, attempt: int) -> Object:
    meta = job["metadata"]
    template = job["spec"]["template"]
    own = template.get("metadata") or {}
    generated = {
        labels.CONTROLLER_UID: meta["uid"],
        labels.JOB_NAME: meta["name"],
        labels.LEGACY_CONTROLLER_UID: meta["uid"],
        labels.LEGACY_JOB_NAME: meta["name"],
        labels.COMPLETION_INDEX: str(index),
    }
    pod_labels = {**(own.get("labels") or {}), **generated}
    spec = dict(template["spec"])
    if labels.JOBSET_NAME in pod_labels:
        pod_labels[labels.POD_PRIORITY] = str(spec.get("priority", 0))
    spec["hostname"] = f"{meta['name']}-{index}"
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_add_index(container) for container in spec[kind]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": build_pod_name(job, index, attempt),
            "generateName": build_prefix(meta["name"], index),
            "namespace": meta["namespace"],
            "labels": pod_labels,
            "annotations": {
                **(own.get("annotations") or {}),
                labels.COMPLETION_INDEX: str(index),
                labels.POD_ATTEMPT: str(attempt),
            },
            "ownerReferences": [build_owner_reference(job)],
        },
        "spec": spec,
    }


def _add_index(container: Mapping[str, Any]) -> Mapping[str, Any]:
    env = container.get("env") or []
    if any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in env):
        return container
    path = f"metadata.labels['{labels.COMPLETION_INDEX}']"
    entry = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    return {**container, "env": [*env, entry]}
