"""The JobSet that a TrainJob stands for: the runtime's template with the TrainJob's values and the framework's.

Precedence, low to high: runtime template, `spec.trainer`, what the framework injects, and once more the TrainJob's own
environment. The order of lists is upstream's, because the objects are compared with upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from trainmaster.api.labels import ANCESTOR_STEP
from trainmaster.api.meta import Object
from trainmaster.api.supported import list_unsupported
from trainmaster.controllers.frameworks import select_framework
from trainmaster.controllers.frameworks.contract import Injection, Training
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.trainjob.fields import RUNTIME, TRAIN_JOB
from trainmaster.controllers.waiting import Waiting

TRAINER = "trainer"
CONTAINER = "node"


def find_unsupported(trainjob: Object, runtime: Object) -> Waiting | None:
    fields = list_unsupported(trainjob["spec"], TRAIN_JOB, "spec")
    fields += [f"{path} of the runtime" for path in list_unsupported(runtime["spec"], RUNTIME, "spec")]
    if not fields:
        return None
    return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)}; remove it to run the job")


def build_jobset(trainjob: Object, runtime: Object) -> Object | Waiting:
    template = runtime["spec"]["template"]
    spec: Object = orjson.loads(orjson.dumps(template.get("spec") or {}))
    problem = _fill(spec, trainjob, runtime)
    if problem is not None:
        return problem
    spec["suspend"] = bool(trainjob["spec"].get("suspend"))
    metadata: Object = {
        "name": trainjob["metadata"]["name"],
        "namespace": trainjob["metadata"]["namespace"],
        "ownerReferences": [build_owner_reference(trainjob)],
    }
    for name in ("labels", "annotations"):
        values = (template.get("metadata") or {}).get(name)
        if values:
            metadata[name] = dict(values)
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _fill(spec: Object, trainjob: Object, runtime: Object) -> Waiting | None:
    trainer = trainjob["spec"].get("trainer") or {}
    policy = runtime["spec"].get("mlPolicy")
    ours = [job for job in spec.get("replicatedJobs") or () if find_ancestor(job) == TRAINER]
    if trainer and not ours:
        text = f"no job of the runtime carries the label {ANCESTOR_STEP}: {TRAINER}, so spec.trainer would be ignored"
        return Waiting("NoTrainerJob", text)
    for job in spec.get("replicatedJobs") or ():
        job_spec = job["template"].setdefault("spec", {})
        if find_ancestor(job):
            job["replicas"] = 1
        count = job_spec.get("parallelism") or 1
        if find_ancestor(job) == TRAINER:
            count = decide_num_nodes(trainer, policy, count)
            if count < 1:
                return Waiting("InvalidNumNodes", f"numNodes is {count}; a job needs at least one node")
            problem = _fill_trainer(job, trainjob, policy or {}, count)
            if problem is not None:
                return problem
        job_spec["parallelism"] = job_spec["completions"] = count
    return None


def find_ancestor(job: Mapping[str, Any]) -> str | None:
    labels = (job["template"].get("metadata") or {}).get("labels") or {}
    value = labels.get(ANCESTOR_STEP)
    return value if isinstance(value, str) else None


def decide_num_nodes(trainer: Mapping[str, Any], policy: Mapping[str, Any] | None, count: int) -> int:
    if policy is not None:
        count = int(policy.get("numNodes", 1))
    asked = trainer.get("numNodes")
    return count if asked is None else int(asked)


def _fill_trainer(job: Object, trainjob: Object, policy: Mapping[str, Any], count: int) -> Waiting | None:
    trainer = trainjob["spec"].get("trainer") or {}
    pod = job["template"]["spec"].setdefault("template", {}).setdefault("spec", {})
    container = next((entry for entry in pod.get("containers") or () if entry.get("name") == CONTAINER), None)
    if container is None:
        names = ", ".join(entry.get("name", "") for entry in pod.get("containers") or ()) or "none"
        text = f"the runtime's job {job['name']} has no container named {CONTAINER}; its containers: {names}"
        return Waiting("NoTrainerContainer", text)
    framework = select_framework(policy)
    policy_values = policy.get(framework.name) or {}
    runtime_resources = container.get("resources") or {}
    own_resources = trainer.get("resourcesPerNode")
    for name in ("image", "command", "args"):
        if trainer.get(name):
            container[name] = trainer[name]
    training = Training(
        name=trainjob["metadata"]["name"],
        num_nodes=count,
        num_proc_per_node=trainer.get("numProcPerNode", policy_values.get("numProcPerNode")),
        resources=own_resources or runtime_resources,
        command=container.get("command") or (),
    )
    problems = framework.list_problems(policy_values, training)
    if problems:
        return Waiting("Unsupported", f"this version does not carry out {', '.join(problems)}")
    if own_resources:
        container["resources"] = _merge_resources(runtime_resources, own_resources)
    _inject(container, trainer.get("env") or (), framework.inject(training))
    return None


def _merge_resources(low: Mapping[str, Any], high: Mapping[str, Any]) -> Object:
    merged = dict(low)
    for side in ("limits", "requests"):
        if high.get(side):
            merged[side] = {**(low.get(side) or {}), **high[side]}
    return merged


def _inject(container: Object, own_env: Iterable[Mapping[str, Any]], injection: Injection) -> None:
    own = list(own_env)
    env = _upsert_env(container.get("env") or (), [*own, *injection.env])
    env = _upsert_env(env, own)
    if env:
        container["env"] = env
    for port in injection.ports:
        container["ports"] = _upsert_port(container.get("ports") or (), port)


def _upsert_env(env: Iterable[Mapping[str, Any]], more: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    by_name = {entry["name"]: entry for entry in env}
    for entry in more:
        by_name[entry["name"]] = entry
    return list(by_name.values())


def _upsert_port(ports: Iterable[Mapping[str, Any]], port: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Upstream's rule: the same number, or both without a name, is the same port."""
    result = list(ports)
    new = {**port, "protocol": port.get("protocol", "TCP")}
    for index, old in enumerate(result):
        if old.get("containerPort") == port["containerPort"] or not (old.get("name") or port.get("name")):
            result[index] = new
            return result
    return [*result, new]
