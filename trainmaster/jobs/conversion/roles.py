"""The replicated jobs of a converted job: one for each role, with Pods made from the v1 templates. Pure.

As in the shipped runtimes a failed rank restarts the whole gang, because the others would wait for it forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.labels import ANCESTOR_STEP
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_metadata
from trainmaster.api.v1jobs.frameworks import EXIT_CODE
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.jobs.models.v1jobs import V1Job

NODE = "node"
_DISRUPTION: Object = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_PERMANENT: Object = {
    "action": "FailJob",
    "onExitCodes": {"containerName": NODE, "operator": "In", "values": list(range(1, 128))},
}


@dataclass(frozen=True, slots=True)
class ConvertedRole:
    name: str
    replica: ReplicaSpec
    count: int
    env: Sequence[Object] = ()
    is_trainer: bool = False
    """Whether `spec.trainer` of the TrainJob applies to it."""
    command: Sequence[str] = ()
    """Replaces the command of the v1 job, if given."""
    depends_on: str = ""
    succeeds_with_first: bool = False
    """Whether its first Pod decides about its success."""


def build_replicated_job(job: V1Job, role: ConvertedRole) -> Object:
    meta: Object = {"labels": {ANCESTOR_STEP: "trainer"}} if role.is_trainer else {}
    rules = [_PERMANENT if role.replica.restart_policy == EXIT_CODE else _DISRUPTION]
    spec: Object = {
        "backoffLimit": 0,
        "parallelism": role.count,
        "completions": role.count,
        "podFailurePolicy": {"rules": rules},
        "template": _build_template(job, role),
    }
    if role.succeeds_with_first:
        spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    template: Object = {"metadata": meta, "spec": spec} if meta else {"spec": spec}
    replicated: Object = {"name": role.name, "template": template}
    if role.depends_on:
        replicated["dependsOn"] = [{"name": role.depends_on, "status": "Ready"}]
    return replicated


def _build_template(job: V1Job, role: ConvertedRole) -> Object:
    given = read_metadata(role.replica.template)
    meta = {name: given[name] for name in ("labels", "annotations") if given.get(name)}
    spec = {**role.replica.pod_spec, "restartPolicy": "Never"}
    spec["containers"] = [_convert_container(job, role, one) for one in list_items(spec, "containers")]
    return {"metadata": meta, "spec": spec} if meta else {"spec": spec}


def _convert_container(job: V1Job, role: ConvertedRole, container: Fields) -> Object:
    if container is not find_main(job, role.replica):
        return dict(container)
    converted: Object = {**container, "name": NODE}
    if role.command:
        converted["command"] = list(role.command)
        converted.pop("args", None)
    env = [*role.env, *list_items(container, "env")]
    if env:
        converted["env"] = env
    return converted


def find_main(job: V1Job, replica: ReplicaSpec) -> Fields | None:
    """The container that the framework runs in; None if there are no containers."""
    containers: Sequence[Fields] = list_items(replica.pod_spec, "containers")
    named = (one for one in containers if one.get("name") == job.framework.container)
    return next(named, containers[0] if containers else None)
