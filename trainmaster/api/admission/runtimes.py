"""Admission of TrainingRuntimes and ClusterTrainingRuntimes, with upstream's texts.

Upstream never validates an update of a TrainingRuntime; here both kinds are checked on both. The label that switches
upstream's webhook off does the same here.

A runtime that TrainJobs refer to is not deleted. A job still runs from its snapshot without its runtime, but clients
that look up the runtime fail, and one such job often makes them fail for the whole namespace. An annotation on the
runtime allows the deletion. Derived runtimes, which exist for single jobs only, can always be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from trainmaster.api import fields, status
from trainmaster.api.admission.contract import Findings
from trainmaster.api.admission.rendering import order
from trainmaster.api.labels import ALLOW_DELETE_IN_USE, DERIVED
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_annotations, read_fields, read_labels
from trainmaster.api.status import StatusError
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.api.training.steps import (
    MAIN_CONTAINER,
    find_ancestor,
    find_container,
    get_template_spec,
    list_containers,
    list_jobs,
)

OPT_OUT = ("trainer.kubeflow.org/webhook-validation", "disabled")
DEPRECATED = ("trainer.kubeflow.org/support", "deprecated")
POLICY_URL = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
_NAMED = 3
"""Maximum number of jobs that a refusal names."""


def admit_runtime(runtime: Object, old: Object | None) -> Findings:
    findings = Findings()
    labels = runtime["metadata"].get("labels") or {}
    if labels.get(OPT_OUT[0]) == OPT_OUT[1]:
        return findings
    if old is None and runtime.get("kind") == "ClusterTrainingRuntime" and labels.get(DEPRECATED[0]) == DEPRECATED[1]:
        findings.warnings.append(
            f'ClusterTrainingRuntime "{runtime["metadata"]["name"]}" is deprecated and will be removed in a future '
            f"release of Kubeflow Trainer. See runtime deprecation policy: {POLICY_URL}"
        )
    for index, job in enumerate(list_jobs(get_template_spec(runtime))):
        ancestor = find_ancestor(job)
        if ancestor is None or ancestor not in MAIN_CONTAINER:
            continue
        path = f"spec.template.spec.replicatedJobs[{index}]"
        if job.get("replicas", 1) != 1:
            findings.errors.append(fields.invalid(f"{path}.replicas", job["replicas"], "always must be 1"))
        if find_container(job, MAIN_CONTAINER[ancestor]) is None:
            text = f"must contain the required container for the ancestor: {ancestor}"
            shown = [{**container, "resources": container.get("resources") or {}} for container in list_containers(job)]
            where = f"{path}.template.spec.template.spec.containers"
            findings.errors.append(fields.invalid(where, order(shown), text))
    return findings


def may_always_be_deleted(runtime: Fields) -> bool:
    """Whoever refers to it."""
    if "deletionTimestamp" in runtime["metadata"] or read_labels(runtime).get(DERIVED) == "true":
        return True
    return read_annotations(runtime).get(ALLOW_DELETE_IN_USE) == "true"


def is_used_by(trainjob: Fields, gvr: GVR, name: str) -> bool:
    """Whether the TrainJob refers to the runtime of that kind and name; the namespace of a TrainingRuntime is the
    caller's to compare."""
    reference = read_fields(trainjob, "spec", "runtimeRef")
    return reference.get("name") == name and find_runtime_gvr(reference) == gvr


def check_unused(gvr: GVR, runtime: Fields, users: Iterable[str]) -> StatusError | None:
    """The refusal to delete a runtime. `users`: NAMESPACE/NAME of the TrainJobs that refer to it."""
    found = list(islice(users, _NAMED + 1))
    return status.forbidden(gvr, runtime["metadata"]["name"], _explain(runtime, found)) if found else None


def _explain(runtime: Fields, users: list[str]) -> str:
    names = ", ".join(users[:_NAMED]) + (" and others" if len(users) > _NAMED else "")
    meta = runtime["metadata"]
    where = f" -n {meta['namespace']}" if meta.get("namespace") else ""
    plural, them = ("", "it") if len(users) == 1 else ("s", "them")
    return (
        f"in use by TrainJob{plural} {names}. Delete {them} first, or allow it with: "
        f"kubectl annotate {runtime['kind'].lower()} {meta['name']}{where} {ALLOW_DELETE_IN_USE}=true"
    )
