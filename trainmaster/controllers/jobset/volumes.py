"""PersistentVolumeClaims of `spec.volumeClaimPolicies`: `<template>-<JobSet>`, shared by all Jobs that mount them.

`Delete` claims belong to the JobSet and go with it; `Retain` claims have no owner, and a later JobSet of the same name
finds them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.client.view import View
from trainmaster.client.writes import Create
from trainmaster.controllers.ownership import build_owner_reference, is_owned_by, is_terminating
from trainmaster.controllers.waiting import Waiting


def _list_templates(jobset: Object) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Each template, and whether its claim goes with the JobSet."""
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        kept = (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Retain"
        for template in policy.get("templates") or ():
            yield template, not kept


def get_claim_name(jobset: Object, template: Mapping[str, Any]) -> str:
    return f"{template['metadata']['name']}-{jobset['metadata']['name']}"


def list_missing(view: View, jobset: Object) -> list[Create] | Waiting:
    """A claim that belonged to an earlier JobSet of the same name may still be on its way out; it is not used."""
    writes = []
    namespace = jobset["metadata"]["namespace"]
    for template, owned in _list_templates(jobset):
        name = get_claim_name(jobset, template)
        claim = view.find(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        if claim is None:
            writes.append(Create(PERSISTENT_VOLUME_CLAIMS, _build_claim(jobset, template, owned=owned)))
        elif is_terminating(claim):
            return Waiting("ClaimTerminating", f'the claim "{name}" is being deleted; it is made anew when it is gone')
        elif owned and not is_owned_by(claim, jobset["metadata"]["uid"]):
            text = f'a claim "{name}" exists that does not belong to this JobSet and would not go with it; delete it'
            return Waiting("ClaimConflict", f"{text}, or keep it with retentionPolicy.whenDeleted: Retain")
    return writes


def _build_claim(jobset: Object, template: Mapping[str, Any], *, owned: bool) -> Object:
    own = template["metadata"]
    meta = {
        "name": get_claim_name(jobset, template),
        "namespace": jobset["metadata"]["namespace"],
        "labels": {**(own.get("labels") or {}), labels.JOBSET_NAME: jobset["metadata"]["name"]},
    }
    if own.get("annotations"):
        meta["annotations"] = dict(own["annotations"])
    if owned:
        meta["ownerReferences"] = [build_owner_reference(jobset)]
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": meta, "spec": dict(template.get("spec") or {})}


def add_volumes(jobset: Object, pod_spec: dict[str, Any]) -> None:
    """A volume for each claim that some container of the Pod mounts."""
    containers = (*(pod_spec.get("containers") or ()), *(pod_spec.get("initContainers") or ()))
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    added = [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": get_claim_name(jobset, template)},
        }
        for template, _ in _list_templates(jobset)
        if template["metadata"]["name"] in mounted
    ]
    if added:
        pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), *added]
