"""Compiles a request into a TrainJob, and a derived runtime if it needs one. Pure.

Only public fields are used, so the result also works with kubectl. What is specific to one job is in the TrainJob:
`spec.trainer`, and an entry of `podTemplateOverrides` or `runtimePatches` (whichever the server supports) for mounts
and annotations of its Pods. What a TrainJob cannot express, the number of restarts, whole Secrets as variables, and MPI
on one node, needs another runtime: a copy of the given one, named by the hash of its content, so that equal requests
share one.

A template of an installation is already a TrainJob: `complete` adds the rest of the request to it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainmaster.api.labels import DERIVED, DERIVED_FROM, FRAMEWORK, PACKAGES
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_text
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.training.steps import (
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    find_ancestor,
    find_container,
    find_trainer,
    get_template_spec,
    list_containers,
    list_jobs,
)
from trainmaster.jobs.compose import carried
from trainmaster.jobs.compose.request import CLAIM, HOST, JobRequest, MountedCode, RequestedMount

OVERRIDES, PATCHES = "podTemplateOverrides", "runtimePatches"
_LONGEST_BASE = 40
_DOLLARS = r"\$\$+|\$(?=\()"


@dataclass(frozen=True, slots=True)
class SupportedFields:
    """The fields that a server supports in TrainJobs. Trainer 2.1 has `podTemplateOverrides`, later releases have
    `runtimePatches`. Not every release has fields for TTL and deadline; annotations replace them."""

    manager: str
    """The manager name in the patches."""
    fields: frozenset[str]
    """The names of the fields of `TrainJob.spec` that the server knows."""

    @property
    def has_overrides(self) -> bool:
        return OVERRIDES in self.fields or PATCHES not in self.fields


@dataclass(frozen=True, slots=True)
class ComposedJob:
    runtime: Object | None
    """The derived runtime; None if the given one suffices."""
    trainjob: Object
    config_map: Object | None = None
    """With the job's code, on servers that have no bundles."""

    @property
    def objects(self) -> tuple[Object, ...]:
        """In the order of creation."""
        return tuple(obj for obj in (self.config_map, self.runtime, self.trainjob) if obj is not None)


def compose(request: JobRequest, base: Object, shape: SupportedFields) -> ComposedJob:
    """`base` is the requested runtime of either kind, as stored on the server."""
    runtime = _derive(request, base)
    chosen = base if runtime is None else runtime
    reference = {"apiGroup": TRAIN_JOBS.group, "kind": chosen["kind"], "name": chosen["metadata"]["name"]}
    trainjob: Object = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": {"name": request.name, "namespace": request.namespace},
        "spec": {"runtimeRef": reference, "trainer": _build_trainer(_wrap_command(request, base))},
    }
    override: Object = {"targetJobs": [{"name": name} for name in list_steps(chosen)]}
    if _add_to_pods(override, request):
        trainjob["spec"][OVERRIDES] = [override]
    config_map = None if request.code is None else request.code.config_map
    return ComposedJob(runtime, _finish(trainjob, request, shape), config_map)


def complete(request: JobRequest, template: Object, shape: SupportedFields) -> Object:
    """A TrainJob from a template, completed from the request. Modifies `template`."""
    if request.env:
        trainer = template["spec"].setdefault("trainer", {})
        known = [entry for entry in trainer.get("env") or () if entry.get("name") not in request.env]
        trainer["env"] = [*known, *_list_variables(request)]
    for override in (template["spec"].get(OVERRIDES) or [])[:1]:
        _add_to_pods(override, request)
    metadata = template.setdefault("metadata", {})
    template["metadata"] = {**metadata, "name": request.name, "namespace": request.namespace}
    return _finish(template, request, shape)


def _finish(trainjob: Object, request: JobRequest, shape: SupportedFields) -> Object:
    """Adds labels, annotations, TTL and deadline, in the shape that the server supports."""
    spec, notes = trainjob["spec"], {**read_annotations(trainjob), **request.annotations}
    if request.code is not None:
        notes |= request.code.annotations
    for name, annotation, seconds in (
        (DEADLINE_FIELD, DEADLINE_ANNOTATION, request.deadline_seconds),
        (TTL_FIELD, TTL_ANNOTATION, request.ttl_seconds),
    ):
        if seconds is not None and name in shape.fields:
            spec[name] = seconds
        elif seconds is not None:
            notes[annotation] = str(seconds)
    if request.is_suspended:
        spec["suspend"] = True
    for name, values in (("labels", {**read_labels(trainjob), **request.labels}), ("annotations", notes)):
        if values:
            trainjob["metadata"][name] = values
    return trainjob if shape.has_overrides else to_patches(trainjob, shape.manager)


# spec.trainer


def _wrap_command(request: JobRequest, base: Object) -> JobRequest:
    if request.code is None or request.code.config_map is None:
        return request
    enters = not carried.has_own_directory(get_template_spec(base))
    return replace(request, command=carried.wrap(request.command, request.code.path, enters=enters))


def _build_trainer(request: JobRequest) -> Object:
    trainer: Object = {"numNodes": request.nodes}
    if request.processes:
        trainer["numProcPerNode"] = int(request.processes) if request.processes.isdecimal() else request.processes
    if request.image:
        trainer["image"] = request.image
    if request.command:
        first, *arguments = map(escape, request.command)
        trainer["command"] = [first]
        if arguments:
            trainer["args"] = arguments
    env = list(_list_variables(request))
    if env:
        trainer["env"] = env
    if request.resources:
        shared = {"cpu": "0"} if request.overcommits and "cpu" in request.resources else {}
        requests = {**request.resources, **shared}
        trainer["resourcesPerNode"] = {"requests": requests, "limits": dict(request.resources)}
    return trainer


def _list_variables(request: JobRequest) -> Iterator[Object]:
    for name, value in request.env.items():
        yield {"name": name, "value": escape(value)}
    for entry in request.secret_variables:
        source = {"secretKeyRef": {"name": entry.secret, "key": entry.key}}
        yield {"name": entry.variable, "valueFrom": source}


def escape(text: str) -> str:
    """Escapes text so that Kubernetes' expansion of $(NAME) and $$ results in exactly this text."""
    return re.sub(_DOLLARS, lambda match: match[0] * 2, text) if "$" in text else text


# The Pods


def list_steps(runtime: Fields) -> Iterator[str]:
    """The jobs of a runtime that run a program of the user: all but the initializers."""
    for job in list_jobs(get_template_spec(runtime)):
        if find_ancestor(job) not in (DATASET, MODEL) and find_container(job, NODE) is not None:
            yield job["name"]


def _add_to_pods(override: Object, request: JobRequest) -> bool:
    """Returns whether there was anything to add to this entry of `podTemplateOverrides`."""
    if request.packages:
        metadata = override.setdefault("metadata", {})
        metadata["annotations"] = {**read_annotations(override), PACKAGES: "\n".join(request.packages)}
    volumes, mounts = _list_volumes(request)
    if not volumes:
        return bool(request.packages)
    spec = override.setdefault("spec", {})
    present = list(list_items(spec, "volumes"))
    if request.code is not None and _replace_code(present, request.code):
        del volumes[0], mounts[0]
    spec["volumes"] = [*present, *volumes]
    containers = spec.setdefault("containers", [])
    node = next((one for one in containers if one.get("name") == NODE), None)
    if node is None:
        node = {"name": NODE}
        containers.append(node)
    node["volumeMounts"] = [*list_items(node, "volumeMounts"), *mounts]
    return True


def _replace_code(volumes: list[Object], code: MountedCode) -> bool:
    """Replaces the volume for the code in a template, keeping its mounts. Returns whether there is one."""
    for number, volume in enumerate(volumes):
        if code.replaces and read_text(volume, "configMap", "name") == code.replaces:
            volumes[number] = {**code.volume, "name": volume["name"]}
            return True
    return False


def _list_volumes(request: JobRequest) -> tuple[list[Object], list[Object]]:
    """The volumes that the request needs, and their mounts; the code first."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    if request.code is not None:
        volumes.append(dict(request.code.volume))
        mounts.append({"name": request.code.volume["name"], "mountPath": request.code.path})
        for volume, where in carried.list_packed_volumes(request.code):
            volumes.append(volume)
            mounts.append(where)
    for number, mount in enumerate(request.mounts):
        name = f"{mount.kind}-{number}"
        volumes.append({"name": name, **_build_source(mount)})
        entry: Object = {"name": name, "mountPath": mount.path}
        mounts.append({**entry, "readOnly": True} if mount.read_only else entry)
    return volumes, mounts


def _build_source(mount: RequestedMount) -> Object:
    if mount.kind == HOST:
        return {"hostPath": {"path": mount.source}}
    if mount.kind == CLAIM:
        return {"persistentVolumeClaim": {"claimName": mount.source}}
    return {"secret": {"secretName": mount.source}}


def to_patches(trainjob: Object, manager: str) -> Object:
    """The same TrainJob with its podTemplateOverrides as runtimePatches."""
    spec = dict(trainjob["spec"])
    jobs = [
        {"name": target["name"], "template": {"spec": {"template": _copy_template(override)}}}
        for override in spec.pop(OVERRIDES, None) or ()
        for target in list_items(override, "targetJobs")
    ]
    if jobs:
        patch = {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        terms = {name: spec.pop(name) for name in (DEADLINE_FIELD, TTL_FIELD, "suspend") if name in spec}
        spec = {**spec, PATCHES: [*list_items(spec, PATCHES), patch], **terms}
    return {**trainjob, "spec": spec}


def _copy_template(override: Fields) -> Object:
    return {key: copy.deepcopy(value) for key, value in override.items() if key != "targetJobs"}


# The runtime


def _derive(request: JobRequest, base: Object) -> Object | None:
    """A runtime like `base` with what a TrainJob cannot express; None if `base` suffices."""
    is_carried = request.code is not None and request.code.config_map is not None
    if request.max_restarts is None and not request.secrets and not request.stdin and not is_carried:
        return None
    spec = copy.deepcopy(base["spec"])
    jobset = spec["template"]["spec"]
    if request.max_restarts is not None:
        _set_restarts(jobset, request.max_restarts)
    if request.secrets:
        _add_secrets(jobset, request.secrets)
    if request.stdin:
        _open_input(jobset, tty=request.tty)
    if request.nodes == 1 and read_fields(spec, "mlPolicy", "mpi").get("runLauncherAsNode"):
        _remove_workers(jobset)
    if is_carried:
        carried.wrap_helpers(jobset)
    return None if spec == base["spec"] else build_derived(base, spec, request.namespace)


def build_derived(base: Object, spec: Object, namespace: str) -> Object:
    """A runtime with this spec, named by its content: a copy of `base` that was changed for single jobs."""
    name = base["metadata"]["name"]
    labels = {DERIVED: "true"}
    if framework := read_labels(base).get(FRAMEWORK):
        labels[FRAMEWORK] = framework
    content = json.dumps([name, labels, spec], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    short = name[:_LONGEST_BASE].rstrip(".-")
    metadata = {
        "name": f"{short}-{digest}",
        "namespace": namespace,
        "labels": labels,
        "annotations": {DERIVED_FROM: f"{base['kind']}/{name}"},
    }
    return {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def _set_restarts(jobset: Object, restarts: int) -> None:
    """A failure restarts the whole gang, up to this many times; single ranks are never restarted."""
    policy = dict(jobset.get("failurePolicy") or {})
    jobset["failurePolicy"] = {**policy, "maxRestarts": restarts}
    for job in list_jobs(jobset):
        job["template"]["spec"]["backoffLimit"] = 0
        job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"


def _remove_workers(jobset: Object) -> None:
    """One node is the launcher alone. With the job `node`, Trainer creates a worker for it too, which takes the same
    resources again."""
    jobs = list_jobs(jobset)
    if not {LAUNCHER, NODE} <= {job["name"] for job in jobs}:
        return
    jobset["replicatedJobs"] = [job for job in jobs if job["name"] != NODE]
    for job in jobset["replicatedJobs"]:
        after = [one for one in list_items(job, "dependsOn") if one["name"] != NODE]
        job.pop("dependsOn", None)
        if after:
            job["dependsOn"] = after
    for policy in (read_fields(jobset, "successPolicy"), *list_items(jobset, "failurePolicy", "rules")):
        targets = list_items(policy, "targetReplicatedJobs")
        if isinstance(targets, list) and NODE in targets:
            targets.remove(NODE)


def _add_secrets(jobset: Object, secrets: tuple[str, ...]) -> None:
    for job in list_jobs(jobset):
        for container in list_containers(job):
            if container["name"] == NODE:
                known = container.setdefault("envFrom", [])
                known += [{"secretRef": {"name": name}} for name in secrets]


def _open_input(jobset: Object, *, tty: bool) -> None:
    """Without a terminal the input ends with the first client's, as with `kubectl run -i`."""
    container = find_container(find_trainer(jobset) or {}, NODE)
    if container is not None:
        container |= {"stdin": True, "tty": True} if tty else {"stdin": True, "stdinOnce": True}
