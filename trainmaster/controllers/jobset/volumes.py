"""PersistentVolumeClaims of `spec.volumeClaimPolicies`: `<template>-<JobSet>`, shared by all Jobs that mount them.

`Delete` claims are owned by the JobSet and deleted with it; `Retain` claims have no owner and are reused by a later
JobSet with the same name.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api import labels
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_spec
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.client.view import View
from trainmaster.client.writes import Create
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.waiting import Waiting
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel


def _list_templates(jobset: JobSet) -> Iterator[tuple[Fields, bool]]:
    """Each template, and whether its claim is deleted with the JobSet."""
    for policy in list_items(jobset.spec, "volumeClaimPolicies"):
        kept = read_fields(policy, "retentionPolicy").get("whenDeleted", "Delete") == "Retain"
        for template in list_items(policy, "templates"):
            yield template, not kept


def get_claim_name(jobset: JobSet, template: Fields) -> str:
    return f"{template['metadata']['name']}-{jobset.name}"


def list_missing(view: View, jobset: JobSet) -> list[Create] | Waiting:
    """A claim of an earlier JobSet with the same name that is still being deleted is not used."""
    writes = []
    for template, owned in _list_templates(jobset):
        name = get_claim_name(jobset, template)
        found = view.find(PERSISTENT_VOLUME_CLAIMS, jobset.namespace, name)
        if found is None:
            writes.append(Create(PERSISTENT_VOLUME_CLAIMS, _build_claim(jobset, template, owned=owned)))
        elif ObjectModel(found).is_deleting:
            return Waiting("ClaimTerminating", f'the claim "{name}" is being deleted; it is made anew when it is gone')
        elif owned and not ObjectModel(found).is_owned_by(jobset.uid):
            text = f'a claim "{name}" exists that does not belong to this JobSet and would not go with it; delete it'
            return Waiting("ClaimConflict", f"{text}, or keep it with retentionPolicy.whenDeleted: Retain")
    return writes


def _build_claim(jobset: JobSet, template: Fields, *, owned: bool) -> Object:
    meta: Object = {
        "name": get_claim_name(jobset, template),
        "namespace": jobset.namespace,
        "labels": {**read_labels(template), labels.JOBSET_NAME: jobset.name},
    }
    if annotations := read_annotations(template):
        meta["annotations"] = dict(annotations)
    if owned:
        meta["ownerReferences"] = [build_owner_reference(jobset.raw)]
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": meta, "spec": dict(read_spec(template))}


def add_volumes(jobset: JobSet, pod_spec: Object) -> None:
    """Adds a volume for each claim that a container of the Pod mounts."""
    containers = (*list_items(pod_spec, "containers"), *list_items(pod_spec, "initContainers"))
    mounted = {mount["name"] for container in containers for mount in list_items(container, "volumeMounts")}
    added = [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": get_claim_name(jobset, template)},
        }
        for template, _ in _list_templates(jobset)
        if template["metadata"]["name"] in mounted
    ]
    if added:
        pod_spec["volumes"] = [*list_items(pod_spec, "volumes"), *added]
