"""Builds the children of a TrainJob: its JobSet, and the other objects that its framework needs.

`api.training.template` fills the TrainJob's values into the runtime's template; then the framework's part is applied,
and the TrainJob's own environment again. Lists are in upstream's order, because the objects are compared with
upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainmaster.api.admission.trainjobs import check_against_runtime
from trainmaster.api.declaring.supported import RUNTIME, TRAIN_JOB, list_unsupported
from trainmaster.api.labels import ANCESTOR_STEP, FIRST_ATTEMPT
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_spec, read_text
from trainmaster.api.training import overrides
from trainmaster.api.training.steps import (
    NODE,
    TRAINER,
    decide_num_nodes,
    find_container,
    find_job,
    find_trainer,
    get_runtime_spec,
    get_template_spec,
    list_jobs,
    read_framework,
)
from trainmaster.api.training.template import fill_template, upsert_env
from trainmaster.controllers.frameworks import inject_gangs, progress, select_framework
from trainmaster.controllers.frameworks.contract import Companion, ContainerPart, FrameworkContext, Injection, Training
from trainmaster.controllers.last_words import keep_last_words
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.waiting import Waiting
from trainmaster.jobs.models.trainjobs import TrainJob


@dataclass(frozen=True, slots=True)
class Children:
    jobset: Object
    companions: tuple[Companion, ...] = ()
    remarks: tuple[str, ...] = ()
    """Deviations from what was requested, one sentence each."""


def find_unsupported(trainjob: TrainJob, runtime: Fields) -> Waiting | None:
    fields = list_unsupported(trainjob.spec, TRAIN_JOB, "spec")
    fields += [f"{path} of the runtime" for path in list_unsupported(get_runtime_spec(runtime), RUNTIME, "spec")]
    if not fields:
        return None
    return Waiting("Unsupported", f"this version does not carry out {', '.join(fields)}; remove it to run the job")


def build_children(trainjob: TrainJob, runtime: Fields, context: FrameworkContext) -> Children | Waiting:
    problem = find_unsupported(trainjob, runtime) or _find_mismatch(trainjob, runtime, context)
    if problem is not None:
        return problem
    spec = fill_template(trainjob.raw, runtime)
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
    if context.logs_as_messages:
        for job in list_jobs(spec):
            keep_last_words(job["template"]["spec"]["template"]["spec"])
    for job in list_jobs(spec):
        job_spec = job["template"].setdefault("spec", {})
        job_spec["parallelism"] = job_spec["completions"] = counts[job["name"]]
    jobset = _build_jobset(trainjob, runtime, spec)
    gangs = inject_gangs(replace(training, jobs=list_jobs(spec), counts=counts), runtime, jobset, context)
    for gang in gangs:
        _mark_pods(spec, gang)
    _continue_attempts(trainjob, jobset)
    companions = [companion for answer in (injection, reporting, *gangs) for companion in answer.companions]
    remarks = [answer.remark for answer in gangs if answer.remark]
    if trainjob.trainer and not training.trainer_job:
        text = f"no job of the runtime carries the label {ANCESTOR_STEP}: {TRAINER}"
        remarks.append(f"{text}, so spec.trainer of this TrainJob has no effect")
    return Children(jobset, tuple(companions), tuple(remarks))


def _find_mismatch(trainjob: TrainJob, runtime: Fields, context: FrameworkContext) -> Waiting | None:
    """What admission also refuses; needed on a cluster without our admission."""
    nodes = trainjob.nodes
    if nodes is not None and nodes < 1:
        return Waiting("InvalidNumNodes", f"numNodes is {nodes}; a job needs at least one node")
    findings = check_against_runtime(trainjob.raw, runtime, embedded=not context.on_cluster)
    return Waiting("Invalid", findings.text) if findings.text else None


def _describe(trainjob: TrainJob, runtime: Fields, spec: Object) -> Training:
    trainer = find_trainer(spec)
    container = _read_node(trainer)
    before = _read_node(find_trainer(get_template_spec(runtime)))
    if trainer is None:
        before = container = _read_node(find_job(spec, NODE))
    counts = {}
    for job in list_jobs(spec):
        parallelism = read_spec(job["template"]).get("parallelism") or 1
        counts[job["name"]] = (
            decide_num_nodes(trainjob.raw, runtime, parallelism) if job is trainer else max(1, parallelism)
        )
    return Training(
        name=trainjob.name,
        namespace=trainjob.namespace,
        runtime_name=trainjob.runtime["name"],
        policy=read_framework(runtime)[1],
        trainer=trainjob.trainer,
        jobs=list_jobs(spec),
        counts=counts,
        trainer_job=trainer["name"] if trainer is not None else "",
        resources=read_fields(container, "resources"),
        runtime_command=list_items(before, "command"),
        runtime_env=list_items(before, "env"),
        subdomain=read_text(spec, "network", "subdomain") or trainjob.name,
    )


def _read_node(job: Fields | None) -> Fields:
    """The container of a job that trains; empty if there is none."""
    return (find_container(job, NODE) if job is not None else None) or {}


def _add_part(spec: Object, part: ContainerPart) -> None:
    job = find_job(spec, part.job)
    if job is None:
        return
    pod = job["template"]["spec"]["template"]["spec"]
    for volume in part.volumes:
        pod["volumes"] = _upsert(list_items(pod, "volumes"), volume, "name")
    for container in part.init_containers:
        pod["initContainers"] = _upsert(list_items(pod, "initContainers"), container, "name")
    named = [*list_items(pod, "containers"), *list_items(pod, "initContainers")]
    target = next((entry for entry in named if entry.get("name") == part.container), None)
    if target is None:
        return
    if part.env:
        target["env"] = upsert_env(list_items(target, "env"), part.env)
    for port in part.ports:
        target["ports"] = _upsert_port(list_items(target, "ports"), port)
    for mount in part.mounts:
        target["volumeMounts"] = _upsert(list_items(target, "volumeMounts"), mount, "mountPath")
    if part.command is not None:
        target["command"] = list(part.command)
    if part.drop_args:
        target.pop("args", None)


def _finish_trainer(spec: Object, training: Training) -> None:
    """The TrainJob's own environment takes precedence; admission rejects variables that must not be changed."""
    job = find_job(spec, training.trainer_job)
    container = find_container(job, NODE) if job is not None else None
    if container is not None and training.env:
        container["env"] = upsert_env(list_items(container, "env"), training.env)


def _mark_pods(spec: Object, gang: Injection) -> None:
    for job in list_jobs(spec):
        template = job["template"]["spec"].setdefault("template", {})
        metadata = template.setdefault("metadata", {})
        for name, values in (("labels", gang.pod_labels), ("annotations", gang.pod_annotations)):
            if values:
                metadata[name] = {**read_fields(metadata, name), **values}


def _build_jobset(trainjob: TrainJob, runtime: Fields, spec: Object) -> Object:
    metadata: Object = {
        "name": trainjob.name,
        "namespace": trainjob.namespace,
        "ownerReferences": [build_owner_reference(trainjob.raw)],
        **overrides.merge_metadata(trainjob.raw, runtime),
    }
    spec["suspend"] = trainjob.is_suspended
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _continue_attempts(trainjob: TrainJob, jobset: Object) -> None:
    """After a restart requested by a user, attempts continue to be numbered from the previous one."""
    first = trainjob.wanted_attempt
    if not first:
        return
    for obj in (jobset, *(job["template"]["spec"].setdefault("template", {}) for job in list_jobs(jobset["spec"]))):
        obj.setdefault("metadata", {})["annotations"] = {**read_annotations(obj), FIRST_ATTEMPT: str(first)}


def _upsert(entries: Iterable[Fields], new: Fields, key: str) -> list[Fields]:
    result = list(entries)
    for index, old in enumerate(result):
        if old.get(key) == new[key]:
            result[index] = new
            return result
    return [*result, new]


def _upsert_port(ports: Iterable[Fields], port: Fields) -> list[Fields]:
    """Ports are identified by number. (Upstream also treats any unnamed port as the same one, and loses it.)"""
    return _upsert(ports, {**port, "protocol": port.get("protocol", "TCP")}, "containerPort")
