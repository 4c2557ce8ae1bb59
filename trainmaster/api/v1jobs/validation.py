"""Admission of v1 jobs: upstream's rules with their texts, and ours for mistakes that upstream lets in.

What upstream lets in and cannot run (names that are too long for a Service, negative numbers, unknown policies, an
MPIJob without a launcher) is refused here, because otherwise it shows only as a job that does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.api import fields
from trainmaster.api.admission.contract import Findings
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.v1jobs.frameworks import (
    CHIEF,
    JAX,
    LAUNCHER,
    MANAGER,
    MASTER,
    MPI,
    MULTIKUEUE,
    MXNET,
    PADDLE,
    PYTORCH,
    RESTART_POLICIES,
    SCHEDULER,
    TENSORFLOW,
    WORKER,
    XGBOOST,
    V1Framework,
)
from trainmaster.api.v1jobs.replicas import build_pod_name, canonicalize, find_surplus, read_replicas
from trainmaster.api.validation import names

CLEAN_POD_POLICIES = ("All", "Running", "None")
_BACKENDS = ("c10d", "etcd", "etcd-v2")
_PROCESSES = ("auto", "cpu", "gpu")
_ALL_WORKERS = "AllWorkers"
_MODES = ("MXTrain", "MXTune")
_LONGEST_NAME = 63
_NPROC_DEPRECATED = "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"
_NO_AUTOSCALER = "spec.elasticPolicy.metrics has no effect: there is no autoscaler on one machine, use kubectl scale"


def admit(framework: V1Framework, new: Fields, old: Fields | None, *, has_autoscaler: bool = False) -> Findings:
    spec: Fields = new.get("spec") or NOTHING
    errors = [*_check_name(framework, new), *_check_policy(spec, None if old is None else old.get("spec"))]
    replicas = spec.get(framework.replicas_field)
    if not replicas:
        errors.append(fields.required(framework.path, "must be required"))
    else:
        errors += _check_replicas(framework, replicas)
        excess = find_surplus(framework, read_replicas(framework, spec))
        errors += [fields.forbidden(framework.path, excess)] if excess else []
    errors += _check_kind(framework, spec)
    elastic = _read_elastic(spec)
    warnings = [_NPROC_DEPRECATED] if elastic.get("nProcPerNode") is not None else []
    if elastic.get("metrics") and not has_autoscaler:
        warnings.append(_NO_AUTOSCALER)
    return Findings(errors, [*warnings, *_list_doubts(framework, spec)])


def _list_doubts(framework: V1Framework, spec: Fields) -> Iterator[str]:
    """Mistakes with which upstream runs a job nevertheless."""
    processes = str(spec.get("nprocPerNode") or "auto")
    if framework is PYTORCH and processes not in _PROCESSES and not processes.isdecimal():
        yield f'spec.nprocPerNode: torchrun accepts {", ".join(_PROCESSES)} or a number, not "{processes}"'
    policy = spec.get("successPolicy") or _ALL_WORKERS
    if framework is TENSORFLOW and policy != _ALL_WORKERS:
        yield f'spec.successPolicy: "{policy}" has no effect; the only value besides "" is "{_ALL_WORKERS}"'
    if framework is MXNET:
        mode = spec.get("jobMode") or _MODES[0]
        if mode not in _MODES:
            yield f'spec.jobMode: "{mode}" has no effect; the values are {" and ".join(_MODES)}'
        types = set(spec.get(framework.replicas_field) or ())
        if types and SCHEDULER not in types and types != {WORKER}:
            yield f"{framework.path}: without a {SCHEDULER}, which decides about the job, it never ends by itself"


def _read_elastic(spec: Fields) -> Fields:
    elastic: Fields = spec.get("elasticPolicy") or NOTHING
    return elastic


def _check_name(framework: V1Framework, job: Fields) -> Iterator[FieldError]:
    name: str = job["metadata"].get("name") or ""
    complaints = names.label_1035(name)
    if complaints:
        yield fields.invalid("metadata.name", name, f"should match: {', '.join(complaints)}")
        return
    replicas = read_replicas(framework, job.get("spec") or NOTHING)
    longest = max((build_pod_name(name, one, max(0, one.count - 1)) for one in replicas.values()), key=len, default="")
    if len(longest) > _LONGEST_NAME:
        room = _LONGEST_NAME - (len(longest) - len(name))
        text = f"must have at most {room} characters, because its Pods are named like {longest}"
        yield fields.invalid("metadata.name", name, text)


def _check_policy(spec: Fields, before: Fields | None) -> Iterator[FieldError]:
    policy: Fields = spec.get("runPolicy") or NOTHING
    manager = policy.get("managedBy")
    if manager is not None and manager not in (MANAGER, MULTIKUEUE):
        yield fields.not_supported("spec.runPolicy.managedBy", manager, (MULTIKUEUE, MANAGER))
    if before is not None and (before.get("runPolicy") or NOTHING).get("managedBy") != manager:
        yield fields.invalid("spec.runPolicy.managedBy", manager, "field is immutable")
    for name in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        yield from _check_number(f"spec.runPolicy.{name}", policy.get(name))
    scheduling: Fields = policy.get("schedulingPolicy") or NOTHING
    yield from _check_number("spec.runPolicy.schedulingPolicy.minAvailable", scheduling.get("minAvailable"))
    for path, holder in (("spec.runPolicy", policy), ("spec", spec)):
        clean = holder.get("cleanPodPolicy")
        if clean is not None and clean not in CLEAN_POD_POLICIES:
            yield fields.not_supported(f"{path}.cleanPodPolicy", clean, CLEAN_POD_POLICIES)


def _check_number(path: str, value: Any, least: int = 0) -> Iterator[FieldError]:
    if value is not None and value < least:
        yield fields.invalid(path, value, f"must be greater than or equal to {least}")


def _check_replicas(framework: V1Framework, replicas: Fields) -> Iterator[FieldError]:
    for name, entry in sorted(replicas.items()):
        path = f"{framework.path}[{name}]"
        is_known = name in framework.types or (framework is TENSORFLOW and canonicalize(framework, name) != name)
        if not is_known:
            yield _refuse_type(framework, path, name)
        entry = entry or NOTHING
        yield from _check_template(framework, path, entry)
        yield from _check_number(f"{path}.replicas", entry.get("replicas"))
        policy = entry.get("restartPolicy")
        if policy is not None and policy not in RESTART_POLICIES:
            yield fields.not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)


def _refuse_type(framework: V1Framework, path: str, name: str) -> FieldError:
    import difflib  # noqa: PLC0415 - only for mistakes

    supported = sorted(framework.types)
    near = difflib.get_close_matches(name.lower(), [word.lower() for word in supported], n=1)
    error = fields.not_supported(path, name, supported)
    if not near or canonicalize(framework, near[0]) == name:
        return error
    hint = f"{error.detail} (did you mean {canonicalize(framework, near[0])!r}?)"
    # Upstream's text, unless the name is close to a known one.
    is_case = near[0] == name.lower()
    return error if is_case else FieldError(path, error.kind, name, hint)


def _check_template(framework: V1Framework, path: str, entry: Fields) -> Iterator[FieldError]:
    template: Fields = entry.get("template") or NOTHING
    containers = (template.get("spec") or NOTHING).get("containers") or ()
    place = f"{path}.template.spec.containers"
    if not containers:
        yield fields.required(place, "must be specified")
    for number, container in enumerate(containers):
        if not container.get("image"):
            yield fields.required(f"{place}[{number}].image", "must be required")
    if framework is not MPI and not any(one.get("name") == framework.container for one in containers):
        word = f'"{framework.container}"' if framework is PADDLE else framework.container
        yield fields.required(place, f"must have at least one container with name {word}")


def _check_kind(framework: V1Framework, spec: Fields) -> Iterator[FieldError]:
    replicas: Fields = spec.get(framework.replicas_field) or NOTHING
    if not replicas:
        return
    if framework in (PYTORCH, XGBOOST):
        yield from _check_master(framework, replicas)
    if framework is PYTORCH:
        yield from _check_pytorch(framework, spec, replicas)
    elif framework is TENSORFLOW:
        yield from _check_tensorflow(framework, replicas)
    elif framework is PADDLE:
        yield from _check_single(framework, replicas, MASTER)
        if MASTER not in replicas:
            yield from _check_workers(framework, replicas)
    elif framework is MPI:
        if LAUNCHER not in replicas:
            yield fields.required(f"{framework.path}[{LAUNCHER}]", "must be present")
        yield from _check_single(framework, replicas, LAUNCHER)
        yield from _check_number("spec.slotsPerWorker", spec.get("slotsPerWorker"), 1)
    elif framework is MXNET:
        yield from _check_single(framework, replicas, SCHEDULER)
    elif framework is JAX:
        yield from _check_workers(framework, replicas)


def _check_master(framework: V1Framework, replicas: Fields) -> Iterator[FieldError]:
    path = f"{framework.path}[{MASTER}]"
    if MASTER not in replicas:
        if framework is XGBOOST:
            yield fields.required(path, "must be present")
    elif (replicas[MASTER] or NOTHING).get("replicas") != 1:
        # As upstream, also if it is not set, although the default is 1.
        yield fields.forbidden(f"{path}.replicas", "must be 1")


def _check_single(framework: V1Framework, replicas: Fields, name: str) -> Iterator[FieldError]:
    number = (replicas.get(name) or NOTHING).get("replicas")
    if name in replicas and number is not None and number != 1:
        yield fields.forbidden(f"{framework.path}[{name}].replicas", "must be 1")


def _check_workers(framework: V1Framework, replicas: Fields) -> Iterator[FieldError]:
    number = (replicas.get(WORKER) or NOTHING).get("replicas")
    if number == 0:
        yield fields.forbidden(f"{framework.path}[{WORKER}].replicas", "must be at least 1")


def _check_tensorflow(framework: V1Framework, replicas: Fields) -> Iterator[FieldError]:
    chiefs = [name for name in replicas if canonicalize(framework, name) in (CHIEF, MASTER)]
    if len(chiefs) > 1:
        yield fields.forbidden(framework.path, "must not have more than 1 Chief or Master role")
    for name in chiefs:
        yield from _check_single(framework, replicas, name)
    if not chiefs:
        # They decide about the job, which would succeed without doing anything.
        yield from _check_workers(framework, {canonicalize(framework, name): replicas[name] for name in replicas})


def _check_pytorch(framework: V1Framework, spec: Fields, replicas: Fields) -> Iterator[FieldError]:
    yield from _check_workers(framework, replicas)
    if spec.get("elasticPolicy") is None:
        return
    elastic = _read_elastic(spec)
    if WORKER not in replicas:
        yield fields.required(f"{framework.path}[{WORKER}]", "must be configured if elastic policy is used")
    if elastic.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        yield fields.forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if least is not None and most is not None and least > most:
        yield fields.invalid("spec.elasticPolicy.minReplicas", least, f"must be at most maxReplicas ({most})")
    backend = elastic.get("rdzvBackend")
    if backend is not None and backend not in _BACKENDS:
        yield fields.not_supported("spec.elasticPolicy.rdzvBackend", backend, _BACKENDS)
