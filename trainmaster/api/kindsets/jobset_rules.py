"""Validation of JobSets beyond their schema, with the messages of upstream's webhook.

On create everything is checked; on update only what may change: upstream compares `replicatedJobs` after masking the
fields that a queueing system edits while a JobSet is suspended. As upstream, errors without a field are internal errors
of the field `<nil>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainmaster.api import fields
from trainmaster.api.fields import ROOT, FieldError, FieldErrorKind
from trainmaster.api.formats.patterns import find_fault
from trainmaster.api.meta import Object
from trainmaster.api.validation import names

_MOST = 2147483647
_MOST_SINGLY = 1024
_REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_SINGLE = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_RULE_NAME_TEXT = (
    "a failure policy rule name must start with an alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
)
_TOO_LONG = "must be no more than 63 characters"
_LONG_JOB = "JobSet name is too long, job names generated for this JobSet will exceed 63 characters"
_LONG_POD = "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters"
_LONG_GROUP = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
_LONG_SUBDOMAIN = ".spec.network.subdomain is too long, must be less than 63 characters"
_COORDINATOR = "jobset.sigs.k8s.io/coordinator"
_MUTABLE = ("nodeSelector", "tolerations", "schedulingGates")


def validate(new: Object, old: Object | None) -> list[FieldError]:
    if old is not None:
        return _check_update(new, old)
    spec = new["spec"]
    jobs: list[Object] = spec.get("replicatedJobs") or []
    errors: list[FieldError] = []
    if (spec.get("failurePolicy") or {}).get("restartStrategy") == "InPlaceRestart":
        text = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
        errors.append(_internal(text))
    if jobs and "dependsOn" in jobs[0]:
        errors.append(_internal("DependsOn can't be set for the first ReplicatedJob"))
    errors += _check_subdomain((spec.get("network") or {}).get("subdomain") or "")
    if "managedBy" in spec:
        errors += _check_manager(spec["managedBy"])
    seen: set[str] = set()
    for index, job in enumerate(jobs):
        seen.add(job["name"])
        errors += _check_job(new["metadata"].get("name", ""), job, seen, f"spec.replicatedJobs[{index}]")
    for name in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ():
        if name not in seen:
            errors.append(_internal(f"invalid replicatedJob name '{name}' does not appear in .spec.ReplicatedJobs"))
    errors += _check_failure_policy(spec.get("failurePolicy") or {}, jobs, seen)
    errors += _check_coordinator(new)
    return errors + _check_claims(new, jobs)


def _internal(text: str) -> FieldError:
    return FieldError(ROOT, FieldErrorKind.INTERNAL, None, text)


def _check_subdomain(subdomain: str) -> list[FieldError]:
    if not subdomain:
        return []
    path = "spec.network.subdomain"
    texts = [*names.subdomain(subdomain), *_replaced(names.label_1035(subdomain), _LONG_SUBDOMAIN)]
    return [fields.invalid(path, subdomain, text) for text in texts]


def _replaced(complaints: Sequence[str], text: str) -> list[str]:
    return [text if complaint == _TOO_LONG else complaint for complaint in complaints]


def _check_manager(manager: str) -> list[FieldError]:
    path = "spec.managedBy"
    domain, slash, rest = manager.partition("/")
    if not manager:
        return [fields.required(path)]
    errors = []
    if not slash or not domain or not rest:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        errors.append(fields.invalid(path, manager, text))
    else:
        errors += [fields.invalid(path, domain, text) for text in names.subdomain(domain)]
    return [*errors, fields.too_long(path, 63)] if len(manager) > 63 else errors


def _check_job(owner: str, job: Object, seen: set[str], path: str) -> list[FieldError]:
    """`seen` contains the names up to and including this one."""
    errors: list[FieldError] = []
    name, replicas = job["name"], job.get("replicas", 1)
    spec = job["template"].get("spec") or {}
    if replicas < 0:
        return [fields.invalid(f"{path}.replicas", replicas, "must be greater than or equal to 0")]
    if spec.get("parallelism", 1) * replicas > _MOST:
        text = f"the product of replicas and parallelism must not exceed {_MOST} for replicatedJob '{name}'"
        errors.append(_internal(text))
    group = job.get("groupName", "default")
    complaints = _replaced(names.label_1035(group), _LONG_GROUP)
    errors += [fields.invalid(f"{path}.groupName", group, text) for text in complaints]
    longest = f"{owner}-{name}-{replicas - 1}"
    complaints = _replaced(names.label_1035(longest), _LONG_JOB)
    errors += [fields.invalid(f"{path}.name", longest, text) for text in complaints]
    if spec.get("completionMode") == "Indexed" and "completions" in spec:
        complaints = _replaced(names.label_1035(f"{longest}-{spec['completions'] - 1}-abcde"), _LONG_POD)
        errors += [fields.invalid(f"{path}.name", longest, text) for text in complaints]
    for dependency in job.get("dependsOn") or ():
        other = dependency["name"]
        # Upstream accepts a job that depends on itself, and then waits forever.
        if other not in seen or other == name:
            errors.append(_internal(f"replicatedJob: {name} cannot depend on replicatedJob: {other}"))
    return errors


def _check_failure_policy(policy: Object, jobs: Sequence[Object], known: set[str]) -> list[FieldError]:
    rules: list[Object] = policy.get("rules") or []
    errors: list[FieldError] = []
    many = any(job.get("replicas", 1) > _MOST_SINGLY for job in jobs)
    if many and any(rule["action"] in _SINGLE for rule in rules):
        text = "JobSet cannot have a failure policy rule with RestartJob or RestartJobAndIgnoreMaxRestarts action and a"
        errors.append(_internal(f"{text} replicated job with replicas > {_MOST_SINGLY}"))
    for rule in rules:
        errors += _check_rule(rule, known)
    places: dict[str, list[int]] = {}
    for index, rule in enumerate(rules):
        places.setdefault(rule.get("name", ""), []).append(index)
    for name, indices in places.items():
        if len(indices) > 1:
            shown = " ".join(map(str, indices))
            text = f"rule names are not unique, rules with indices [{shown}] all have the same name '{name}'"
            errors.append(_internal(text))
    return errors


def _check_rule(rule: Object, known: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = rule.get("name", "")
    if not 1 <= len(name) <= 128:
        text = f"invalid failure policy rule name of length {len(name)}, the rule name must be at least 1 characters"
        errors.append(_internal(f"{text} long and at most 128 characters long"))
    if _RULE_NAME.fullmatch(name) is None:
        errors.append(_internal(f"invalid failure policy rule name '{name}', {_RULE_NAME_TEXT}"))
    for target in rule.get("targetReplicatedJobs") or ():
        if target not in known:
            text = f"invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
            errors.append(_internal(text))
    for reason in rule.get("onJobFailureReasons") or ():
        if reason not in _REASONS:
            text = f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
            errors.append(_internal(text))
    return errors


def _check_coordinator(job_set: Object) -> list[FieldError]:
    spec = job_set["spec"]
    coordinator = spec.get("coordinator")
    if not coordinator:
        return []
    errors = _check_coordinator_target(coordinator, spec.get("replicatedJobs") or [])
    name, job = job_set["metadata"].get("name", ""), coordinator["replicatedJob"]
    subdomain = (spec.get("network") or {}).get("subdomain") or name
    value = f"{name}-{job}-{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}.{subdomain}"
    complaints = names.label_value(value)
    if complaints:
        text = f'spec will lead to invalid label value "{value}" for coordinator label "{_COORDINATOR}" (long JobSet /'
        errors.append(_internal(f"{text} ReplicatedJob / SubDomain name?): {', '.join(complaints)}"))
    return errors


def _check_coordinator_target(coordinator: Object, jobs: Sequence[Object]) -> list[FieldError]:
    name, index, pod = coordinator["replicatedJob"], coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    job = next((job for job in jobs if job["name"] == name), None)
    if job is None:
        return [_internal(f"coordinator replicatedJob {name} does not exist")]
    if not 0 <= index < job.get("replicas", 1):
        return [_internal(f"coordinator job index {index} is invalid for replicatedJob {name}")]
    spec = job["template"].get("spec") or {}
    if spec.get("completionMode") != "Indexed" or "completions" not in spec:
        text = "job for coordinator pod must be indexed completion mode, and completions number must be set"
        return [_internal(text)]
    if not 0 <= pod < spec["completions"]:
        return [_internal(f"coordinator pod index {pod} is invalid for replicatedJob {name} job index {index}")]
    return []


def _check_claims(job_set: Object, jobs: Sequence[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(job_set["spec"].get("volumeClaimPolicies") or ()):
        for position, template in enumerate(policy.get("templates") or ()):
            path = f"spec.volumeClaimPolicies[{index}].template[{position}].name"
            name = (template.get("metadata") or {}).get("name", "")
            if name in seen:
                errors.append(fields.invalid(path, name, "names must be unique for VolumeClaimPolicies template"))
            errors += [fields.invalid(path, name, text) for text in names.subdomain(name)]
            if len(f"{name}-{job_set['metadata'].get('name', '')}") > 63:
                errors.append(fields.invalid(path, name, "VolumeClaimPolicies template name is too long"))
            errors += _check_mounts(name, jobs)
            seen.add(name)
    return errors


def _check_mounts(name: str, jobs: Sequence[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    mounted = False
    for index, job in enumerate(jobs):
        pod = ((job["template"].get("spec") or {}).get("template") or {}).get("spec") or {}
        for position, volume in enumerate(pod.get("volumes") or ()):
            if volume["name"] == name:
                path = f"spec.replicatedJobs[{index}].template.spec.template.spec.volumes[{position}].name"
                text = f"volume name conflicts with VolumeClaimPolicy template name: {name}"
                errors.append(fields.invalid(path, name, text))
        containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
        mounts = (mount["name"] for container in containers for mount in container.get("volumeMounts") or ())
        mounted = mounted or name in mounts
    if not mounted:
        text = f"replicatedJob containers don't have a matching volumeMount: {name} from VolumeClaimPolicies"
        errors.append(fields.invalid("spec.replicatedJobs", jobs, text))
    return errors


def _check_update(new: Object, old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, before = new["spec"], old["spec"]
    loose = bool(before.get("suspend") or spec.get("suspend"))
    jobs, standing = spec.get("replicatedJobs") or [], before.get("replicatedJobs") or []
    if [_mask(job, loose=loose) for job in jobs] != [_mask(job, loose=loose) for job in standing]:
        errors.append(fields.invalid("spec.replicatedJobs", jobs, "field is immutable"))
    if spec.get("managedBy") != before.get("managedBy"):
        errors.append(fields.invalid("spec.managedBy", spec.get("managedBy"), "field is immutable"))
    if spec.get("coordinator") != before.get("coordinator"):
        # Upstream checks this only on create; an invalid value would end up in labels.
        errors += _check_coordinator(new)
    return errors


def _mask(job: Object, *, loose: bool) -> Object:
    """A ReplicatedJob without the fields that may change while the JobSet is suspended, or in the same update."""
    if not loose:
        return job
    spec = dict(job["template"].get("spec") or {})
    pod = dict(spec.get("template") or {})
    pod["metadata"] = {k: v for k, v in (pod.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    pod["spec"] = {k: v for k, v in (pod.get("spec") or {}).items() if k not in _MUTABLE}
    return {**job, "template": {**job["template"], "spec": {**spec, "template": pod}}}


def warn(new: Object, old: Object | None) -> list[str]:
    """Warns about invalid patterns. Upstream silently skips them when a Job has failed."""
    texts = []
    rules = (new["spec"].get("failurePolicy") or {}).get("rules") or ()
    for index, rule in enumerate(rules):
        if rule["action"] in _SINGLE:
            text = "clusters refuse it unless the feature gate RestartJob of their JobSet manager is on"
            texts.append(f"spec.failurePolicy.rules[{index}].action {rule['action']}: {text}")
        for position, pattern in enumerate(rule.get("onJobFailureMessagePatterns") or ()):
            fault = find_fault(pattern)
            if fault is not None:
                path = f"spec.failurePolicy.rules[{index}].onJobFailureMessagePatterns[{position}]"
                texts.append(f"{path} never matches: {fault}")
    return texts
