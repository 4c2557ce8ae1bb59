"""Builds the Pods of a Job (name, labels, host name, completion index) and reads what is known from existing ones.

The name's suffix is derived from (Job uid, index, attempt) or, without indexes, from (Job uid, serial number), so a
pass that does not see an existing Pod gets AlreadyExists instead of creating a second one. Among the Pods of an index
the newest attempt sorts first by name, because clients such as the Kubeflow SDK take the first Pod in a list.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_metadata
from trainmaster.controllers.job.expected_pods import Slot
from trainmaster.controllers.job.keys import FAILURE_COUNT, IGNORED_COUNT
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod, read_terminated
from trainmaster.kit.clock import parse_time

_ALPHABET = "2456789bcdfghjklmnpqrstvwxz"
"""In ascending order."""
_MOST_ATTEMPTS = 1_000_000
"""About a fifteenth of all suffixes of five letters. After that many attempts the order starts over."""
_INDEX: Fields = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{labels.COMPLETION_INDEX}']"}},
}
_LONGEST_PREFIX = 58
"""A Pod name is a DNS label of at most 63 characters, five of which are the suffix."""


def build_pod_name(job: Job, number: int, attempt: int) -> str:
    uid, name = job.uid, job.name
    if not job.is_indexed:
        return build_prefix(name, None) + _spell(_hash(f"{uid}//{number}"))
    newest = _hash(f"{uid}/{number}") % (len(_ALPHABET) ** 5 - _MOST_ATTEMPTS)
    return build_prefix(name, number) + _spell(newest + _MOST_ATTEMPTS - 1 - attempt % _MOST_ATTEMPTS)


def build_prefix(job_name: str, index: int | None) -> str:
    tail = "-" if index is None else f"-{index}-"
    return job_name[: _LONGEST_PREFIX - len(tail)].rstrip(".") + tail


def _hash(identity: str) -> int:
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8])


def _spell(number: int) -> str:
    """Five letters that sort like the numbers."""
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(reversed(letters))


def find_index(pod: Pod) -> int | None:
    """From the annotation, as upstream."""
    return find_number(pod, labels.COMPLETION_INDEX)


def get_failure_counts(pod: Pod) -> tuple[int, int]:
    return find_number(pod, FAILURE_COUNT) or 0, find_number(pod, IGNORED_COUNT) or 0


def find_number(pod: Pod, key: str) -> int | None:
    """Reads a number from an annotation."""
    return find_count(pod.annotations.get(key))


def count_restarts(pod: Pod) -> int:
    return sum(int(entry.get("restartCount", 0)) for entry in pod.all_container_statuses)


def get_finish_time(pod: Pod) -> datetime:
    """When the Pod ended: its last container's end, otherwise when it became not ready, was deleted or created."""
    ends: list[str] = [read_terminated(entry).get("finishedAt", "") for entry in pod.container_statuses]
    if ends and all(ends):
        return max(parse_time(end) for end in ends)
    ready = pod.find_condition("Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse_time(ready["lastTransitionTime"])
    if pod.is_deleting:
        grace = timedelta(seconds=pod.meta.get("deletionGracePeriodSeconds") or 0)
        return parse_time(pod.meta["deletionTimestamp"]) - grace
    return parse_time(pod.meta["creationTimestamp"])


def build_pod(job: Job, number: int, slot: Slot) -> Object:
    """Valid like the template, with which it shares everything except what defaults and admission change in a Pod."""
    template, indexed = job.template, job.is_indexed
    pod_labels = {**read_labels(template), **_build_labels(job)}
    annotations = {**read_annotations(template), labels.POD_ATTEMPT: str(slot.attempt if indexed else number)}
    finalizers = read_metadata(template).get("finalizers")
    spec = dict(template["spec"])
    if labels.JOBSET_NAME in pod_labels:
        pod_labels[labels.POD_PRIORITY] = str(spec.get("priority", 0))
    if indexed:
        pod_labels[labels.COMPLETION_INDEX] = annotations[labels.COMPLETION_INDEX] = str(number)
        annotations.update(_build_counts(job, slot))
        spec["hostname"] = f"{job.name}-{number}"
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_build_container(container, indexed=indexed) for container in spec[kind]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": build_pod_name(job, number, slot.attempt),
            "generateName": build_prefix(job.name, number if indexed else None),
            "namespace": job.namespace,
            "labels": pod_labels,
            "annotations": annotations,
            "ownerReferences": [build_owner_reference(job.raw)],
            **({"finalizers": list(finalizers)} if finalizers else {}),
        },
        "spec": spec,
    }


def _build_labels(job: Job) -> dict[str, str]:
    """A Job with its own selector also has its own labels."""
    if job.spec.get("manualSelector"):
        return {}
    uid, name = job.uid, job.name
    return {
        labels.CONTROLLER_UID: uid,
        labels.JOB_NAME: name,
        labels.LEGACY_CONTROLLER_UID: uid,
        labels.LEGACY_JOB_NAME: name,
    }


def _build_counts(job: Job, slot: Slot) -> dict[str, str]:
    if "backoffLimitPerIndex" not in job.spec:
        return {}
    ignored = {IGNORED_COUNT: str(slot.ignored)} if slot.ignored else {}
    return {FAILURE_COUNT: str(slot.failures), **ignored}


def _build_container(container: Fields, *, indexed: bool) -> Object:
    built = {**container, "resources": {**read_fields(container, "resources")}}
    env = list_items(container, "env")
    if indexed and not any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in env):
        built["env"] = [*env, _INDEX]
    return built
