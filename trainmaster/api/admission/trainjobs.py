"""Admission of TrainJobs: consistency with the runtime, allowed changes, and the times of runtime patches.

A new TrainJob is checked against the live runtime, an update against the job's own snapshot, so that editing or
deleting a runtime never prevents suspending, resuming or labelling a job (upstream's trainer#3923).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.admission import updates
from trainmaster.api.admission.contract import Findings, Lookup
from trainmaster.api.admission.frameworks import check_framework, check_gang
from trainmaster.api.admission.overrides import check_overrides, check_pods
from trainmaster.api.admission.rendering import order
from trainmaster.api.admission.runtimes import DEPRECATED, POLICY_URL
from trainmaster.api.fields import FieldError
from trainmaster.api.labels import ANCESTOR_STEP, ON_STALL
from trainmaster.api.lifecycle import policy, stalls
from trainmaster.api.lifecycle.policy import RetentionPolicy, read_policy
from trainmaster.api.lifecycle.terms import check_enforced, find_ttl
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS, TRAINING_RUNTIMES
from trainmaster.api.training import names, overrides, snapshots
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.api.training.steps import (
    INITIALIZERS,
    LAUNCHER,
    NODE,
    TRAINER,
    decide_num_nodes,
    find_ancestor,
    find_container,
    find_job,
    find_trainer,
    get_template_spec,
    list_jobs,
    read_framework,
)
from trainmaster.api.training.template import fill_template

_INITIALIZER_VOLUME = "initializer"


def admit_create(trainjob: Fields, lookup: Lookup, *, embedded: bool) -> Findings:
    reference = (trainjob.get("spec") or {}).get("runtimeRef") or {}
    gvr = find_runtime_gvr(reference)
    if gvr is None or not reference.get("name"):
        return Findings(refusal=f"unsupported runtime: {reference.get('kind')}.{reference.get('apiGroup')}")
    namespace = trainjob["metadata"]["namespace"] if gvr == TRAINING_RUNTIMES else ""
    runtime = lookup.find(gvr, namespace, reference["name"])
    if runtime is None:
        return Findings([_refuse_missing(reference)])
    findings = check_against_runtime(trainjob, runtime, embedded=embedded)
    findings.errors += check_gang(trainjob, runtime, lookup)
    findings.errors += check_enforced(trainjob, runtime, read_installation_policy(lookup))
    findings.warnings += _warn(trainjob, runtime)
    return findings


def admit_update(new: Object, old: Object, lookup: Lookup) -> Findings:
    if "deletionTimestamp" in old["metadata"]:
        return Findings()
    findings = _admit_change(new, old, lookup)
    if find_ttl(new, None, RetentionPolicy()) != find_ttl(old, None, RetentionPolicy()):
        runtime = find_live_runtime(new, lookup) or find_runtime(new, lookup)
        findings.errors += check_enforced(new, runtime, read_installation_policy(lookup))
    return findings


def _admit_change(new: Object, old: Object, lookup: Lookup) -> Findings:
    if new.get("spec") == old.get("spec"):
        return Findings()
    if not new.get("spec") or not old.get("spec"):
        return Findings(refusal="spec is required")
    changed = [shape for shape in overrides.SHAPES if new["spec"].get(shape) != old["spec"].get(shape)]
    metadata = any(new["spec"].get(name) != old["spec"].get(name) for name in ("labels", "annotations"))
    if not changed and not metadata:
        return Findings()
    findings = Findings(updates.check_moment(new, old, changed, lookup))
    runtime = find_runtime(new, lookup)
    if runtime is None or findings.errors:
        return findings
    findings.errors += check_overrides(new, runtime)
    if not findings.errors and changed:
        findings.errors += updates.check_reach(new, old, changed, runtime, lookup)
    if not findings.errors:
        findings.errors += check_pods(new, runtime, fill_template(new, runtime))
    return findings


def find_runtime(trainjob: Fields, lookup: Lookup) -> Object | None:
    """The runtime of the job: its snapshot, else the live runtime, if there is one."""
    text = find_snapshot(trainjob, lookup)
    if text is None:
        return find_live_runtime(trainjob, lookup)
    try:
        return snapshots.read(text)
    except ValueError:
        return None


def find_snapshot(trainjob: Fields, lookup: Lookup) -> str | None:
    """The text of the job's snapshot."""
    snapshot = lookup.find(CONFIG_MAPS, trainjob["metadata"]["namespace"], snapshots.get_name(trainjob))
    if snapshot is None:
        return None
    owners = {owner.get("uid") for owner in snapshot["metadata"].get("ownerReferences") or ()}
    text = (snapshot.get("data") or {}).get(snapshots.DATA_KEY)
    return text if trainjob["metadata"].get("uid") in owners and isinstance(text, str) else None


def find_live_runtime(trainjob: Fields, lookup: Lookup) -> Object | None:
    """The current runtime that the TrainJob refers to."""
    reference = (trainjob.get("spec") or {}).get("runtimeRef") or {}
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        return None
    namespace = trainjob["metadata"]["namespace"] if gvr == TRAINING_RUNTIMES else ""
    return lookup.find(gvr, namespace, reference["name"])


def read_installation_policy(lookup: Lookup) -> RetentionPolicy:
    return read_policy(lookup.find(CONFIG_MAPS, policy.NAMESPACE, policy.NAME)).policy


def check_against_runtime(trainjob: Fields, runtime: Fields, *, embedded: bool) -> Findings:
    """All rules that depend only on the TrainJob and its runtime."""
    errors = _check_initializers(trainjob, runtime) + check_overrides(trainjob, runtime)
    if errors:
        # Merging would only report the same problems again.
        return Findings(errors)
    filled = fill_template(trainjob, runtime)
    findings = check_framework(trainjob, runtime, filled)
    findings.errors += _check_name(trainjob, runtime, filled)
    if embedded and read_framework(runtime)[0] == "flux":
        text = "mlPolicy.flux of the runtime is not supported here: there is no Flux broker on this machine"
        findings.errors.append(_refuse_runtime(trainjob, text))
    trainer = find_trainer(filled)
    if trainer is not None and find_container(trainer, NODE) is None:
        text = f"must have container with name - {NODE} in the {trainer['name']} job"
        findings.errors.append(_refuse_runtime(trainjob, text))
    findings.errors += check_pods(trainjob, runtime, filled)
    return findings


def _refuse_missing(reference: Mapping[str, Any]) -> FieldError:
    kind = reference.get("kind", "ClusterTrainingRuntime")
    error = f'{kind}.{snapshots.GROUP} "{reference["name"]}" not found'
    word = kind[0].lower() + kind[1:]
    # The capital R is upstream's.
    path = "spec.runtimeRef" if kind == "TrainingRuntime" else "spec.RuntimeRef"
    text = f"{error}: specified {word} must be created before the TrainJob is created"
    return fields.invalid(path, order(reference), text)


def _refuse_runtime(trainjob: Fields, text: str) -> FieldError:
    return fields.invalid("spec.runtimeRef", order(trainjob["spec"]["runtimeRef"]), text)


def _check_initializers(trainjob: Fields, runtime: Fields) -> list[FieldError]:
    errors: list[FieldError] = []
    wanted = trainjob["spec"].get("initializer") or {}
    spec = get_template_spec(runtime)
    for name, field in INITIALIZERS.items():
        if wanted.get(field) is None:
            continue
        job = find_job(spec, name)
        if job is None:
            text = f"must have {name} job when trainJob is configured with input {field}Config"
            errors.append(_refuse_runtime(trainjob, text))
            continue
        container = find_container(job, name)
        if container is None:
            text = f"must have container with name - {name} in the {name} job"
            errors.append(_refuse_runtime(trainjob, text))
            continue
        mounts = [mount.get("name") for mount in container.get("volumeMounts") or ()]
        if _INITIALIZER_VOLUME not in mounts:
            text = f"must have volumeMount with name - {_INITIALIZER_VOLUME} in container {name} of the {name} job"
            errors.append(_refuse_runtime(trainjob, text))
        elif wanted[field] and find_ancestor(job) != name:
            label = f"{ANCESTOR_STEP}: {name}"
            text = f"must have the label {label} on the {name} job, or spec.initializer.{field} has no effect"
            errors.append(_refuse_runtime(trainjob, text))
    return errors


def _check_name(trainjob: Fields, runtime: Fields, filled: Object) -> list[FieldError]:
    counts = names.count_pods(filled)
    trainer = find_trainer(filled)
    nodes = decide_num_nodes(trainjob, runtime, counts[trainer["name"]][1] if trainer is not None else 1)
    policy = read_framework(runtime)[0]
    for job in list_jobs(filled):
        name = job["name"]
        if policy == "mpi" and name in (NODE, LAUNCHER):
            counts[name] = (counts[name][0], nodes if name == NODE else 1)
        elif find_ancestor(job) == TRAINER:
            counts[name] = (1, nodes)
    text = names.find_too_long(trainjob["metadata"]["name"], counts)
    return [] if text is None else [fields.invalid("metadata.name", trainjob["metadata"]["name"], text)]


def _warn(trainjob: Fields, runtime: Fields) -> list[str]:
    texts = []
    name = runtime["metadata"]["name"]
    labels = runtime["metadata"].get("labels") or {}
    if labels.get(DEPRECATED[0]) == DEPRECATED[1] and "namespace" not in runtime["metadata"]:
        texts.append(
            f'Referenced ClusterTrainingRuntime "{name}" is deprecated and will be removed in a future release of '
            f"Kubeflow Trainer. See runtime deprecation policy: {POLICY_URL}"
        )
    restarts = read_fields(get_template_spec(runtime), "failurePolicy").get("maxRestarts")
    if stalls.read_policy(trainjob, stalls.OBSERVE) == stalls.RESTART and not restarts:
        text = f'the annotation {ON_STALL} is restart, but runtime "{name}" allows no restarts (maxRestarts)'
        texts.append(f"{text}; if the steps of this TrainJob stand still, it fails")
    if trainjob["spec"].get("trainer") and find_trainer(get_template_spec(runtime)) is None:
        text = f'no job of runtime "{name}" carries the label {ANCESTOR_STEP}: {TRAINER}'
        texts.append(f"{text}; spec.trainer of this TrainJob has no effect")
    return texts


def stamp_times(new: Object, old: Object | None, now: str) -> None:
    """Sets `time` of each runtime patch to when it was added or last changed. In place."""
    patches = new["spec"].get("runtimePatches") if isinstance(new.get("spec"), dict) else None
    if not isinstance(patches, list):
        return
    known = {patch.get("manager"): patch for patch in ((old or {}).get("spec") or {}).get("runtimePatches") or ()}
    for patch in patches:
        # Runs before the object is validated.
        if not isinstance(patch, dict) or not isinstance(patch.get("manager"), str | None):
            continue
        before = known.get(patch.get("manager"))
        if before is None:
            if not patch.get("time"):
                patch["time"] = now
        elif _without_time(before) == _without_time(patch):
            patch["time"] = before.get("time") or now
        else:
            patch["time"] = now


def _without_time(patch: Mapping[str, Any]) -> Object:
    return {name: value for name, value in patch.items() if name != "time"}
