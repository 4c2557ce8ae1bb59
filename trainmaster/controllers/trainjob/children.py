"""What a TrainJob stands for: its JobSet, and the objects that its framework needs beside it.

The runtime's template with the TrainJob's values comes from `api.training.template`; the framework's answer goes on
top, and once more the TrainJob's own environment. The order of lists is upstream's, because the objects are compared
with upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.api.admission.trainjobs import check_against_runtime
from trainmaster.api.labels import ANCESTOR_STEP, FIRST_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.supported import list_unsupported
from trainmaster.api.training import overrides, restarts
from trainmaster.api.training.steps import (
    NODE,
    TRAINER,
    decide_num_nodes,
    find_container,
    find_job,
    find_policy,
    find_trainer,
    get_runtime_spec,
    get_template_spec,
    list_jobs,
)
from trainmaster.api.training.template import fill_template, upsert_env
from trainmaster.controllers.frameworks import inject_gangs, progress, select_framework
from trainmaster.controllers.frameworks.contract import Companion, ContainerPart, FrameworkContext, Injection, Training
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.trainjob.fields import RUNTIME, TRAIN_JOB
from trainmaster.controllers.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Children:
    jobset: Object
    companions: tuple[Companion, ...] = ()
    remarks: tuple[str, ...] = ()
    """What is done otherwise than asked, a sentence each."""


def find_unsupported(trainjob: Object, runtime: Object) -> Waiting | None:
    fields = list_unsupported(trainjob["spec"], TRAIN_JOB, "spec")
    fields += [f"{path} of the runtime" for path in list_unsupported(get_runtime_spec(runtime), RUNTIME, "spec")]
    if not fields:
        return None
    return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)}; remove it to run the job")


def build_children(trainjob: Object, runtime: Object, context: FrameworkContext) -> Children | Waiting:
    problem = find_unsupported(trainjob, runtime) or _find_mismatch(trainjob, runtime, context)
    if problem is not None:
        return problem
    spec = fill_template(trainjob, runtime)
    training = _describe(trainjob, runtime, spec)
    framework = select_framework(runtime)
    problems = framework.list_problems(training, context)
    if problems:
        return Waiting("Unsupported", f"this version does not carry out {'; '.join(problems)}")
    injection = framework.inject(training, context)
    counts = {**training.counts, **injection.counts}
    reporting = progress.inject(training, context)
    for part in (*injection.parts, *reporting.parts):
        _add_part(spec, part)
    _finish_trainer(spec, training)
    for job in list_jobs(spec):
        job_spec = job["template"].setdefault("spec", {})
        job_spec["parallelism"] = job_spec["completions"] = counts[job["name"]]
    jobset = _build_jobset(trainjob, runtime, spec)
    gangs = inject_gangs(replace(training, jobs=list_jobs(spec), counts=counts), runtime, jobset, context)
    for gang in gangs:
        _mark_pods(spec, gang)
    _count_on(trainjob, jobset)
    companions = [companion for answer in (injection, reporting, *gangs) for companion in answer.companions]
    remarks = [answer.remark for answer in gangs if answer.remark]
    if trainjob["spec"].get("trainer") and not training.trainer_job:
        text = f"no job of the runtime carries the label {ANCESTOR_STEP}: {TRAINER}"
        remarks.append(f"{text}, so spec.trainer of this TrainJob has no effect")
    return Children(jobset, tuple(companions), tuple(remarks))


def _find_mismatch(trainjob: Object, runtime: Object, context: FrameworkContext) -> Waiting | None:
    """What admission refuses too; a cluster without our admission must hear it from here."""
    nodes = (trainjob["spec"].get("trainer") or {}).get("numNodes")
    if nodes is not None and nodes < 1:
        return Waiting("InvalidNumNodes", f"numNodes is {nodes}; a job needs at least one node")
    findings = check_against_runtime(trainjob, runtime, embedded=not context.on_cluster)
    return Waiting("Invalid", findings.text) if findings.text else None


def _describe(trainjob: Object, runtime: Object, spec: Object) -> Training:
    trainer = find_trainer(spec)
    container = (find_container(trainer, NODE) if trainer is not None else None) or {}
    original = find_trainer(get_template_spec(runtime))
    before = (find_container(original, NODE) if original is not None else None) or {}
    if trainer is None:
        node = find_job(spec, NODE)
        before = container = (find_container(node, NODE) if node is not None else None) or {}
    counts = {}
    for job in list_jobs(spec):
        parallelism = (job["template"].get("spec") or {}).get("parallelism") or 1
        counts[job["name"]] = (
            decide_num_nodes(trainjob, runtime, parallelism) if job is trainer else max(1, parallelism)
        )
    meta = trainjob["metadata"]
    return Training(
        name=meta["name"],
        namespace=meta["namespace"],
        runtime_name=trainjob["spec"]["runtimeRef"]["name"],
        policy=find_policy(runtime)[1],
        trainer=trainjob["spec"].get("trainer") or {},
        jobs=list_jobs(spec),
        counts=counts,
        trainer_job=trainer["name"] if trainer is not None else "",
        resources=container.get("resources") or {},
        runtime_command=before.get("command") or (),
        runtime_env=before.get("env") or (),
        subdomain=(spec.get("network") or {}).get("subdomain") or meta["name"],
    )


def _add_part(spec: Object, part: ContainerPart) -> None:
    job = find_job(spec, part.job)
    if job is None:
        return
    pod = job["template"]["spec"]["template"]["spec"]
    for volume in part.volumes:
        pod["volumes"] = _upsert(pod.get("volumes") or (), volume, "name")
    for container in part.init_containers:
        pod["initContainers"] = _upsert(pod.get("initContainers") or (), container, "name")
    named = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    target = next((entry for entry in named if entry.get("name") == part.container), None)
    if target is None:
        return
    if part.env:
        target["env"] = upsert_env(target.get("env") or (), part.env)
    for port in part.ports:
        target["ports"] = _upsert_port(target.get("ports") or (), port)
    for mount in part.mounts:
        target["volumeMounts"] = _upsert(target.get("volumeMounts") or (), mount, "mountPath")
    if part.command is not None:
        target["command"] = list(part.command)
    if part.drop_args:
        target.pop("args", None)


def _finish_trainer(spec: Object, training: Training) -> None:
    """The TrainJob's own environment has the last word; admission keeps it away from what must not change."""
    job = find_job(spec, training.trainer_job)
    container = find_container(job, NODE) if job is not None else None
    if container is not None and training.env:
        container["env"] = upsert_env(container.get("env") or (), training.env)


def _mark_pods(spec: Object, gang: Injection) -> None:
    for job in list_jobs(spec):
        template = job["template"]["spec"].setdefault("template", {})
        metadata = template.setdefault("metadata", {})
        for name, values in (("labels", gang.pod_labels), ("annotations", gang.pod_annotations)):
            if values:
                metadata[name] = {**(metadata.get(name) or {}), **values}


def _build_jobset(trainjob: Object, runtime: Object, spec: Object) -> Object:
    metadata: Object = {
        "name": trainjob["metadata"]["name"],
        "namespace": trainjob["metadata"]["namespace"],
        "ownerReferences": [build_owner_reference(trainjob)],
        **overrides.merge_metadata(trainjob, runtime),
    }
    spec["suspend"] = bool(trainjob["spec"].get("suspend"))
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _count_on(trainjob: Object, jobset: Object) -> None:
    """After a restart that somebody asked for, attempts go on where they were."""
    first = restarts.read_wanted(trainjob)
    if not first:
        return
    for obj in (jobset, *(job["template"]["spec"].setdefault("template", {}) for job in list_jobs(jobset["spec"]))):
        metadata = obj.setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), FIRST_ATTEMPT: str(first)}


def _upsert(entries: Iterable[Mapping[str, Any]], new: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    result = list(entries)
    for index, old in enumerate(result):
        if old.get(key) == new[key]:
            result[index] = new
            return result
    return [*result, new]


def _upsert_port(ports: Iterable[Mapping[str, Any]], port: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """By number. (Upstream also takes any unnamed port for the same one, and loses it.)"""
    return _upsert(ports, {**port, "protocol": port.get("protocol", "TCP")}, "containerPort")
