"""Admission of TrainingRuntimes and ClusterTrainingRuntimes, with upstream's texts.

Upstream never validates an update of a TrainingRuntime; here both kinds are checked on both. The label that switches
upstream's webhook off does the same here.
"""

from __future__ import annotations

from trainmaster.api import fields
from trainmaster.api.admission.contract import Findings
from trainmaster.api.admission.rendering import order
from trainmaster.api.meta import Object
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
