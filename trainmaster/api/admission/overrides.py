"""Rules about the overrides of a TrainJob: the names they use, what they may set, and the resulting Pods.

Upstream checks names against a template into which the override is already merged, so it accepts unknown names, and the
job never starts. Here they are checked against the original template, and the message lists the existing names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainmaster.api import fields
from trainmaster.api.admission.rendering import order
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods import defaults
from trainmaster.api.pods.validation import check_template
from trainmaster.api.training import overrides
from trainmaster.api.training.overrides import JobPatch
from trainmaster.api.training.steps import (
    DATASET,
    INITIALIZERS,
    LAUNCHER,
    MAIN_CONTAINER,
    MODEL,
    NODE,
    TRAINER,
    find_ancestor,
    find_container,
    find_job,
    find_trainer,
    get_template_spec,
    list_container_names,
    list_containers,
    list_jobs,
    list_node_jobs,
    read_framework,
)
from trainmaster.api.training.template import upsert_env
from trainmaster.api.validation import names
from trainmaster.api.validation.metadata import check_annotations, check_labels

_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_CONTAINER_PATH = re.compile(r"template\.spec\.(?P<group>containers|initContainers)\[(?P<index>\d+)\]\.(?P<rest>.+)")
_VARIABLE_PATH = re.compile(r"env\[(\d+)\]")
_OWN_ENV = (DATASET, MODEL, NODE)
_UNKNOWN_JOB = {
    "runtimePatches": "must not have replicated job that doesn't exist in the runtime job template",
    "podTemplateOverrides": "must not have targetJob that doesn't exist in the runtime job template",
    "podSpecOverrides": "must not have targetJob that doesn't exist in the runtime job template",
}
_FRAMEWORK_VOLUMES = {"mpi": {NODE: ("mpi-ssh-auth",), LAUNCHER: ("mpi-ssh-auth", "mpi-hostfile")}}


def check_overrides(trainjob: Fields, runtime: Fields) -> list[FieldError]:
    """Checks names and structure; `check_pods` checks the resulting Pods."""
    spec = trainjob["spec"]
    errors = _check_managers(spec.get("runtimePatches") or ())
    errors += _check_duplicate_targets(spec.get("podSpecOverrides") or ())
    errors += _check_metadata(spec)
    template = get_template_spec(runtime)
    seen: set[str] = set()
    for patch in overrides.list_job_patches(trainjob):
        for text in _check_patch(patch, template):
            if (where := f"{patch.shape} {text}") not in seen:
                seen.add(where)
                errors.append(fields.invalid(f"spec.{patch.shape}", order(spec[patch.shape]), text))
    return errors + _check_mounts(trainjob, runtime)


def _check_managers(patches: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    errors: list[FieldError] = []
    path = "spec.runtimePatches.manager"
    for patch in patches:
        manager = patch["manager"]
        host, _, rest = manager.partition("/")
        if not host or not rest:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            errors.append(fields.invalid(path, manager, text))
            continue
        errors += [fields.invalid(path, host, text) for text in names.subdomain(host)]
        if not re.fullmatch(_PATH, rest):
            errors.append(fields.invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH}')"))
    return errors


def _check_duplicate_targets(entries: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """The 2.0 shape may target each job only once."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        for place, target in enumerate(entry.get("targetJobs") or ()):
            if target["name"] in seen:
                path = f"spec.podSpecOverrides[{index}].targetJobs[{place}]"
                errors.append(fields.duplicate(path, target["name"]))
            seen.add(target["name"])
    return errors


def _check_metadata(spec: Mapping[str, Any]) -> list[FieldError]:
    """Labels and annotations for the JobSet and its Jobs; those of Pods are checked with the Pods."""
    errors = check_labels("spec.labels", spec.get("labels") or {})
    errors += check_annotations("spec.annotations", spec.get("annotations") or {})
    for index, patch in enumerate(spec.get("runtimePatches") or ()):
        template = overrides.get_patch_template(patch)
        path = f"spec.runtimePatches[{index}].trainingRuntimeSpec.template"
        places = [(f"{path}.metadata", template.get("metadata") or {})]
        for place, job in enumerate(list_jobs(template.get("spec") or {})):
            where = f"{path}.spec.replicatedJobs[{place}].template"
            job_template = job.get("template") or {}
            pod_template = (job_template.get("spec") or {}).get("template") or {}
            places.append((f"{where}.metadata", job_template.get("metadata") or {}))
            places.append((f"{where}.spec.template.metadata", pod_template.get("metadata") or {}))
        for where, metadata in places:
            errors += check_labels(f"{where}.labels", metadata.get("labels") or {})
            errors += check_annotations(f"{where}.annotations", metadata.get("annotations") or {})
            others = [name for name, value in metadata.items() if value and name not in ("labels", "annotations")]
            errors += [
                fields.forbidden(f"{where}.{name}", "only labels and annotations can be patched") for name in others
            ]
    return errors


def _check_patch(patch: JobPatch, template: Mapping[str, Any]) -> list[str]:
    texts: list[str] = []
    job = find_job(template, patch.job)
    if job is None:
        known = [entry["name"] for entry in list_jobs(template)]
        texts.append(f"{_UNKNOWN_JOB[patch.shape]}: {patch.job}; the runtime has {_name_list(known)}")
    for group, word in (("initContainers", "initContainer"), ("containers", "container")):
        known = list_container_names(job or {}, group)
        missing = [entry["name"] for entry in patch.pod.get(group) or () if entry["name"] not in known]
        if missing:
            text = f"must not have {word} that doesn't exist in the runtime job {patch.job}"
            texts.append(f"{text}: {_name_list(missing)}; it has {_name_list(known)}" if job is not None else text)
    for entry in patch.pod.get("containers") or ():
        if entry["name"] in _OWN_ENV and entry.get("env"):
            texts.append("must not have envs for the dataset-initializer, model-initializer, node containers")
            break
    return texts


def _name_list(items: Sequence[str]) -> str:
    return ", ".join(items) or "none"


def _check_mounts(trainjob: Fields, runtime: Fields) -> list[FieldError]:
    """Every mounted volume must exist in the runtime, an override, a claim template or the framework."""
    merged = overrides.merge_jobs(dict(get_template_spec(runtime)), trainjob)
    errors: list[FieldError] = []
    for patch in overrides.list_job_patches(trainjob):
        job = find_job(merged, patch.job)
        if job is None:
            continue
        known = list_volumes(job, runtime)
        for group in ("containers", "initContainers"):
            for container in patch.pod.get(group) or ():
                for mount in container.get("volumeMounts") or ():
                    if mount["name"] not in known:
                        path = f"spec.{patch.shape}[{patch.index}]"
                        text = f"volumeMounts of container {container['name']} of job {patch.job}: no such volume"
                        text = f"{text}; its volumes: {_name_list(known)}"
                        errors.append(fields.invalid(path, mount["name"], text))
    return errors


def list_volumes(job: Mapping[str, Any], runtime: Fields) -> list[str]:
    pod = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
    known = [volume["name"] for volume in (pod.get("spec") or {}).get("volumes") or ()]
    for policy in get_template_spec(runtime).get("volumeClaimPolicies") or ():
        known += [claim["metadata"]["name"] for claim in policy.get("templates") or ()]
    known += _FRAMEWORK_VOLUMES.get(read_framework(runtime)[0], {}).get(job.get("name", ""), ())
    return known


def check_pods(trainjob: Fields, runtime: Fields, spec: Object) -> list[FieldError]:
    """Whether the Pods of the filled-in template would be accepted; they are created long after the TrainJob.

    Fills defaults and the trainer's environment into `spec`, which the caller must discard.
    """
    errors: list[FieldError] = []
    _add_trainer_env(trainjob, spec)
    for job in list_jobs(spec):
        template = job["template"]["spec"].get("template") or {}
        pod = dict(template.get("spec") or {})
        pod.setdefault("restartPolicy", "OnFailure")
        declared = {volume.get("name") for volume in pod.get("volumes") or ()}
        missing = [name for name in list_volumes(job, runtime) if name not in declared]
        if missing:
            # Volumes that JobSet or the framework adds; their kind does not matter to the mounts.
            pod["volumes"] = [*(pod.get("volumes") or ()), *({"name": name, "emptyDir": {}} for name in missing)]
        defaults.default_spec(pod)
        whole: Object = {"metadata": template.get("metadata") or {}, "spec": pod}
        for error in check_template(whole, "template"):
            errors.append(_attribute(error, trainjob, runtime, job))
    return errors


def _add_trainer_env(trainjob: Fields, spec: Object) -> None:
    """The frameworks add it later, each in its own way; for validation the order does not matter."""
    env = (trainjob["spec"].get("trainer") or {}).get("env")
    job = find_trainer(spec)
    container = find_container(job, NODE) if job is not None else None
    if env and container is not None:
        # Copies, because defaults are filled in.
        container["env"] = upsert_env(container.get("env") or (), deepcopy(env))


def _attribute(error: FieldError, trainjob: Fields, runtime: Fields, job: Object) -> FieldError:
    """Moves the error to the field of the TrainJob that caused it, or to the reference to the runtime."""
    spec, name = trainjob["spec"], job["name"]
    text = f"the Pods of job {name} would be refused: {error}"
    found = _CONTAINER_PATH.match(error.path)
    if found is not None:
        container = list_containers(job, found["group"])[int(found["index"])]
        if found["rest"] == "image" and not container.get("image"):
            return _refuse_without_image(trainjob, job, container)
        if (path := _find_cause(trainjob, runtime, job, container, found["rest"])) is not None:
            return fields.invalid(path, fields.OMIT, text)
    patches = [patch for patch in overrides.list_job_patches(trainjob) if patch.job == name]
    if patches:
        return fields.invalid(f"spec.{patches[-1].shape}[{patches[-1].index}]", fields.OMIT, text)
    return fields.invalid("spec.runtimeRef", order(spec["runtimeRef"]), text)


def _refuse_without_image(trainjob: Fields, job: Object, container: Mapping[str, Any]) -> FieldError:
    where = f"container {container.get('name')} of job {job['name']}"
    if find_ancestor(job) == TRAINER and container.get("name") == NODE:
        return fields.required("spec.trainer.image", f"the runtime sets no image for {where}")
    reference = order(trainjob["spec"]["runtimeRef"])
    return fields.invalid("spec.runtimeRef", reference, f"{where} has no image; set one in the runtime")


def _find_cause(trainjob: Fields, runtime: Fields, job: Object, container: Mapping[str, Any], rest: str) -> str | None:
    """The field of the TrainJob that sets `rest` of the container, outside the overrides."""
    name, ancestor = container.get("name"), find_ancestor(job)
    trainer = trainjob["spec"].get("trainer") or {}
    is_node = name == NODE and bool(list_node_jobs(runtime, [job]))
    if is_node and rest.startswith("resources") and trainer.get("resourcesPerNode"):
        return "spec.trainer.resourcesPerNode"
    if is_node and rest == "image" and ancestor == TRAINER and trainer.get("image"):
        return "spec.trainer.image"
    if ancestor is None or name != MAIN_CONTAINER.get(ancestor):
        return None
    path, own = "spec.trainer", trainer
    if ancestor in INITIALIZERS:
        path = f"spec.initializer.{INITIALIZERS[ancestor]}"
        own = (trainjob["spec"].get("initializer") or {}).get(INITIALIZERS[ancestor]) or {}
    if (variable := _VARIABLE_PATH.match(rest)) is not None:
        entry = container["env"][int(variable[1])]
        return f"{path}.env" if entry["name"] in [one["name"] for one in own.get("env") or ()] else None
    return f"{path}.secretRef" if rest.startswith("envFrom[") and own.get("secretRef") else None
