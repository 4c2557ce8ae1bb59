"""JobSet: a group of Jobs that live and fail together.

A custom kind, as upstream, with the defaults of upstream's webhook, which stores the JobSet as Go writes it. The
webhook's validation is in `jobset_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import JOB_SET_SPEC, OBJECT, H
from trainmaster.api.declaring.kinds import READ, WRITE, Column, Kind, QuotaRules, TenantRules
from trainmaster.api.kindsets import jobset_rules
from trainmaster.api.labels import RESERVED_IN_TEMPLATES
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.schemas import load
from trainmaster.api.spelling import compile_speller


def default(job_set: Object) -> None:
    spec = job_set.setdefault("spec", {})
    if not isinstance(spec, dict):
        return
    default_spec(spec)
    if spell := compile_speller("jobset.v1alpha2.JobSetSpec", JOB_SET.load().properties["spec"]):
        spell(spec)


def default_spec(spec: Object) -> None:
    """Tolerates wrong types, which validation reports later."""
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    if isinstance(network, dict):
        network.setdefault("enableDNSHostnames", True)
        network.setdefault("publishNotReadyAddresses", True)
    for job in _list_objects(spec.get("replicatedJobs")):
        template = job.get("template")
        job_spec = template.get("spec") if isinstance(template, dict) else None
        if not isinstance(job_spec, dict):
            continue
        job_spec.setdefault("completionMode", "Indexed")
        pod = job_spec.get("template")
        pod_spec = pod.get("spec") if isinstance(pod, dict) else None
        if isinstance(pod_spec, dict):
            pod_spec.setdefault("restartPolicy", "OnFailure")
    policy = spec.get("failurePolicy")
    if isinstance(policy, dict):
        for index, rule in enumerate(_list_objects(policy.get("rules"))):
            if not rule.get("name"):
                rule["name"] = f"failurePolicyRule{index}"
    for policy in _list_objects(spec.get("volumeClaimPolicies")):
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})


def _list_objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _status(name: str, job_set: Object, now: float) -> Any:
    value = (job_set.get("status") or {}).get(name)
    return None if value is None else str(value)


def _get_completed(job_set: Object, now: float) -> Any:
    condition = cells.find_condition(job_set, "Completed")
    return condition.get("status") if condition is not None else None


def _get_suspended(job_set: Object, now: float) -> Any:
    value = (job_set.get("spec") or {}).get("suspend")
    return None if value is None else str(value).lower()


def list_gangs(job_set: Fields) -> Iterator[tuple[int, Fields]]:
    """The gangs of a JobSet, or of a JobSet template in a runtime."""
    for job in list_items(job_set, "spec", "replicatedJobs"):
        spec = read_fields(job, "template", "spec")
        yield int(job.get("replicas") or 1) * int(spec.get("parallelism") or 1), read_fields(spec, "template")


JOB_SET = Kind(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    singular="jobset",
    namespaced=True,
    definition="io.x-k8s.jobset.v1alpha2.JobSet",
    load=partial(load, "io.x-k8s.jobset.v1alpha2.JobSet"),
    custom=True,
    status=True,
    columns=(
        cells.NAME,
        Column("TerminalState", partial(_status, "terminalState"), json_path=".status.terminalState"),
        Column("Restarts", partial(_status, "restarts"), json_path=".status.restarts"),
        Column("Completed", _get_completed, json_path='.status.conditions[?(@.type=="Completed")].status'),
        Column("Suspended", _get_suspended, json_path=".spec.suspend"),
        cells.CUSTOM_AGE,
    ),
    default=default,
    validate=jobset_rules.validate,
    warnings=jobset_rules.warn,
    quotas=QuotaRules(writes_data=True),
    tenants=TenantRules(list_gangs=list_gangs, reserved=RESERVED_IN_TEMPLATES, controlled=True),
    roles={"view": {"": READ, "status": READ}, "edit": {"": WRITE}, "tenant": {"": READ}},
    fidelity={**OBJECT, "spec": JOB_SET_SPEC, "status": H},
)

KINDS = (JOB_SET,)
