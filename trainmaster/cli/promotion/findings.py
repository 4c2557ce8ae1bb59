"""Compares a job here with what it is there: runtime, image, quota, fields, names. Pure; `target` reads the facts.

An obstacle keeps the job from running there, a difference does not; what could not be read is said, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.fidelity import list_used
from trainmaster.api.declaring.kinds import Fidelity
from trainmaster.api.formats import quantity
from trainmaster.api.labels import PACKAGES
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.pods.quotas import Usage, list_unspecified, measure_pod
from trainmaster.api.reading import list_items, read_annotations, read_fields
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    TRAIN_JOBS,
)
from trainmaster.api.training.steps import get_pod, list_jobs
from trainmaster.apiserver.admission.quotas import show
from trainmaster.jobs.compose import carried
from trainmaster.jobs.models.quotas import ResourceQuota

OBSTACLE, DIFFERENCE, UNCHECKED = "obstacle", "difference", "not checked"
_MOST_PATHS = 8
_LONGEST = 60
Reference = tuple[GVR, str]
"""An object that the Pods name."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: str
    about: str
    """crd, runtime, image, quota, field, code or reference."""
    text: str


def compare_runtimes(here: Object, there: Object) -> Iterator[Finding]:
    """What the runtime of the same name says differently."""
    changed = list(_list_changes(here["spec"], there["spec"], "spec"))
    for path, ours, theirs in changed[:_MOST_PATHS]:
        yield Finding(DIFFERENCE, "runtime", f"{path}: here {ours}, there {theirs}")
    if len(changed) > _MOST_PATHS:
        yield Finding(DIFFERENCE, "runtime", f"and {len(changed) - _MOST_PATHS} more fields differ")


def _list_changes(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for name in dict.fromkeys((*ours, *theirs)):
            yield from _list_changes(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif _is_named(ours) and _is_named(theirs):
        left, right = ({str(item["name"]): item for item in items} for items in (ours, theirs))
        for name in dict.fromkeys((*left, *right)):
            yield from _list_changes(left.get(name), right.get(name), f"{path}[{name}]")
    elif ours != theirs and (ours or theirs):  # servers write empty values differently
        yield path, _show(ours), _show(theirs)


def _is_named(items: Any) -> bool:
    return isinstance(items, list) and bool(items) and all(isinstance(one, Mapping) and "name" in one for one in items)


def _show(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def list_fields(trainjob: Object, runtime: Object) -> Iterator[Finding]:
    """The fields that are approximated or inert here, and carried out as written there."""
    kinds = catalogue.build()
    notes: dict[tuple[Fidelity, str], list[str]] = {}
    for obj, gvr, head in ((trainjob, TRAIN_JOBS, ""), (runtime, CLUSTER_TRAINING_RUNTIMES, "runtime ")):
        kind = kinds.find(gvr)
        assert kind is not None, "always served"
        for one in list_used(kind, obj):
            if one.fidelity in (Fidelity.APPROXIMATED, Fidelity.IGNORED_BY_DESIGN):
                notes.setdefault((one.fidelity, one.note), []).append(f"{head}{one.path}")
    for (fidelity, note), paths in notes.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield Finding(DIFFERENCE, "field", f"{paths[0]}{more}: {fidelity.value} here{f' ({note})' if note else ''}")


def list_places(jobset: Object, environment: str) -> Iterator[Finding]:
    """What only this machine has: `environment` describes what ran here in place of the images."""
    images = {str(one.get("image", "")) for pod, _ in list_pods(jobset) for one in list_items(pod, "containers")}
    for image in sorted(images - {""}):
        yield Finding(DIFFERENCE, "image", f"{image} is pulled there; {environment}")
    if "" in images:
        yield Finding(OBSTACLE, "image", "a container has no image: set spec.trainer.image, or one in the runtime")
    for job in list_jobs(read_fields(jobset, "spec")):
        template = read_fields(job, "template", "spec", "template")
        if packages := read_annotations(template).get(PACKAGES):
            text = f"the packages {', '.join(packages.split())} are installed here only: the image must have them"
            yield Finding(DIFFERENCE, "image", text)
        for volume in list_items(template, "spec", "volumes"):
            if "hostPath" in volume:
                text = f"{volume['hostPath'].get('path')} is a path of this machine; there it is one of each node"
                yield Finding(DIFFERENCE, "volume", text)


def list_pods(jobset: Object) -> Iterator[tuple[Object, int]]:
    """(Pod spec, number of such Pods at the same time)."""
    for job in list_jobs(read_fields(jobset, "spec")):
        count = int(job.get("replicas") or 1) * int(read_fields(job, "template", "spec").get("parallelism") or 1)
        yield get_pod(job), count


# Quotas


def measure(jobset: Object) -> Usage:
    total: Usage = {"count/trainjobs.trainer.kubeflow.org": Fraction(1), "count/jobsets.jobset.x-k8s.io": Fraction(1)}
    for pod, count in list_pods(jobset):
        for name, amount in {**measure_pod(pod), "pods": Fraction(1), "count/pods": Fraction(1)}.items():
            total[name] = total.get(name, Fraction(0)) + amount * count
    return total


def check_quotas(quotas: Iterable[Object], jobset: Object, *, has_defaults: bool) -> Iterator[Finding]:
    """`has_defaults`: a LimitRange may add requests and limits that containers do not specify."""
    usage = measure(jobset)
    for quota in map(ResourceQuota, quotas):
        if quota.spec.get("scopes") or quota.spec.get("scopeSelector"):
            yield Finding(UNCHECKED, "quota", f"the ResourceQuota {quota.name} has scopes")
            continue
        for name, limit in quota.hard.items():
            wanted, most = usage.get(name, Fraction(0)), quantity.parse(limit)
            left = most - quantity.parse(quota.used.get(name, "0"))
            if not wanted or wanted <= left:
                continue
            text = f"the job needs {show(wanted, limit)} of {name}, and the ResourceQuota {quota.name} "
            if wanted > most:
                yield Finding(OBSTACLE, "quota", f"{text}allows {limit}: ask for less, or for a larger quota")
            else:
                yield Finding(
                    DIFFERENCE, "quota", f"{text}has {show(left, limit)} of {limit} left: it waits for others"
                )
        if not has_defaults:
            missing = {text for pod, _ in list_pods(jobset) for text in list_unspecified(pod, quota.hard)}
            for one in sorted(missing):
                text = f"the ResourceQuota {quota.name} requires {one}: set spec.trainer.resourcesPerNode"
                yield Finding(OBSTACLE, "quota", text)


# Names


def list_references(jobset: Object) -> list[Reference]:
    """Objects that the Pods name, each once."""
    return list(dict.fromkeys(one for pod, _ in list_pods(jobset) for one in _list_of_pod(pod)))


def _list_of_pod(pod: Object) -> Iterator[Reference]:
    for key, gvr in (("serviceAccountName", SERVICE_ACCOUNTS), ("priorityClassName", PRIORITY_CLASSES)):
        if pod.get(key):
            yield gvr, str(pod[key])
    for entry in list_items(pod, "imagePullSecrets"):
        yield SECRETS, str(entry.get("name"))
    for volume in list_items(pod, "volumes"):
        yield from _list_of_volume(volume)
    for group in ("initContainers", "containers"):
        for container in list_items(pod, group):
            yield from _list_of_container(container)


def _list_of_volume(volume: Fields) -> Iterator[Reference]:
    if volume.get("name") == carried.PACKED_VOLUME:
        return
    for key, field, gvr in (
        ("secret", "secretName", SECRETS),
        ("configMap", "name", CONFIG_MAPS),
        ("persistentVolumeClaim", "claimName", PERSISTENT_VOLUME_CLAIMS),
    ):
        source = volume.get(key)
        if source and source.get(field) and not source.get("optional"):
            yield gvr, str(source[field])


def _list_of_container(container: Fields) -> Iterator[Reference]:
    single = (read_fields(one, "valueFrom") for one in list_items(container, "env"))
    for source in (*list_items(container, "envFrom"), *single):
        for key, gvr in (
            ("secretRef", SECRETS),
            ("configMapRef", CONFIG_MAPS),
            ("secretKeyRef", SECRETS),
            ("configMapKeyRef", CONFIG_MAPS),
        ):
            reference = source.get(key)
            if reference and reference.get("name") and not reference.get("optional"):
                yield gvr, str(reference["name"])
