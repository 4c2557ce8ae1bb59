"""PersistentVolumeClaims of `spec.volumeClaimPolicies`: `<template>-<JobSet>`, shared by all Jobs that mount them.

`Delete` claims are owned by the JobSet and deleted with it; `Retain` claims have no owner and are reused by a later
JobSet with the same name, if they fit its templates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.api import labels
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_spec
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.client.view import View
from trainmaster.client.writes import Create
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.waiting import Waiting
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.volumes import PersistentVolumeClaim


def _list_templates(jobset: JobSet) -> Iterator[tuple[Fields, bool]]:
    """Each template, and whether its claim is deleted with the JobSet."""
    for policy in list_items(jobset.spec, "volumeClaimPolicies"):
        kept = read_fields(policy, "retentionPolicy").get("whenDeleted", "Delete") == "Retain"
        for template in list_items(policy, "templates"):
            yield template, not kept


def get_claim_name(jobset: JobSet, template: Fields) -> str:
    return f"{template['metadata']['name']}-{jobset.name}"


def list_missing(view: View, jobset: JobSet, *, is_started: bool) -> list[Create] | Waiting:
    """A claim of an earlier JobSet with the same name that is still being deleted is not used. Whether claims fit is
    checked before the first Job is created: a JobSet that has started keeps its data."""
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
        elif not is_started and (misfits := "; ".join(list_misfits(PersistentVolumeClaim(found), template))):
            text = f'the existing claim "{name}" does not fit its template: {misfits}'
            advice = "Enlarge or delete the claim, correct the template, or give the job another name"
            return Waiting("ClaimMismatch", f"{text}. {advice}")
    return writes


def list_misfits(claim: PersistentVolumeClaim, template: Fields) -> list[str]:
    """What the template asks for and the claim does not have. A claim may have more; a template without a class takes
    any. Upstream requires equal specs, which a bound claim never has."""
    wanted = PersistentVolumeClaim(template)
    problems = []
    if missing := [mode for mode in wanted.access_modes if mode not in claim.access_modes]:
        problems.append(f"it lacks the access mode {' and '.join(missing)}")
    if "storageClassName" in wanted.spec and wanted.storage_class != claim.storage_class:
        problems.append(f'its class is "{claim.storage_class}" instead of "{wanted.storage_class}"')
    if claim.volume_mode != wanted.volume_mode:
        problems.append(f"its volume mode is {claim.volume_mode} instead of {wanted.volume_mode}")
    size, least = claim.size, wanted.requests.get("storage", "0")
    if not _is_enough(size, least):
        problems.append(f"its size is {size} instead of at least {least}")
    return problems


def _is_enough(size: str, least: Any) -> bool:
    try:
        return quantity.parse(size) >= quantity.parse(least)
    except ValueError:
        return False


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
