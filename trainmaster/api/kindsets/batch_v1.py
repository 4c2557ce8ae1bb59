"""Job: Pods that run to completion. Its Pod template obeys the rules of `api.pods`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import JOB_SPEC, OBJECT, H
from trainmaster.api.declaring.kinds import READ, WRITE, Column, DeletionRules, Kind, QuotaRules, TenantRules
from trainmaster.api.fields import FieldError
from trainmaster.api.formats.selectors import parse_object
from trainmaster.api.jobs.policies import check_failure_policy, check_success_policy
from trainmaster.api.jobs.status import check_status
from trainmaster.api.labels import CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods.defaults import default_spec
from trainmaster.api.pods.printing import TEMPLATE_COLUMNS
from trainmaster.api.pods.validation import check_template
from trainmaster.api.reading import read_fields, read_spec
from trainmaster.api.schemas import load
from trainmaster.api.status import StatusError
from trainmaster.api.validation import names
from trainmaster.api.validation.selectors import check_label_selector

_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_MOST_INDEXES = 100_000
_MOST_OF_MANY = 10_000
"""Maximum parallelism and maxFailedIndexes with a backoff limit per index and more than 100,000 completions."""
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_UNLIMITED = 2147483647
_ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def default(job: Object) -> None:
    spec = job.setdefault("spec", {})
    if "parallelism" not in spec:
        spec["parallelism"] = 1
        spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", _UNLIMITED if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    labels = template.setdefault("metadata", {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)
    default_spec(template.setdefault("spec", {}))
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"


def prepare(job: Object) -> None:
    """Sets the selector and the labels of the Pod template, with old and new keys. Needs uid and name."""
    spec, metadata = job["spec"], job["metadata"]
    job["status"] = {}
    template = spec["template"]["metadata"]
    if not spec["manualSelector"]:
        labels = dict(template.get("labels") or {})
        for key, value in _own_labels(metadata).items():
            labels.setdefault(key, value)
        template["labels"] = labels
        selector = spec.setdefault("selector", {})
        selector["matchLabels"] = {CONTROLLER_UID: metadata["uid"]} | dict(selector.get("matchLabels") or {})
    if not metadata.get("labels") and template.get("labels"):
        metadata["labels"] = dict(template["labels"])


def _own_labels(metadata: Object) -> dict[str, str]:
    uid, name = metadata["uid"], metadata.get("name", "")
    return {LEGACY_CONTROLLER_UID: uid, LEGACY_JOB_NAME: name, CONTROLLER_UID: uid, JOB_NAME: name}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new["spec"]
    errors = _check_generated_selector(new, spec)
    text = "must be greater than or equal to 0"
    given = ((name, spec[name]) for name in _NOT_NEGATIVE if name in spec)
    errors += [fields.invalid(f"spec.{name}", value, text) for name, value in given if value < 0]
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errors.append(fields.required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        errors += _check_manager(spec["managedBy"], "spec.managedBy")
    errors += _check_mode(spec)
    if spec.get("podFailurePolicy"):
        errors += check_failure_policy(spec, "spec.podFailurePolicy")
    if spec.get("successPolicy") and spec.get("completionMode") == "Indexed":
        errors += check_success_policy(spec, "spec.successPolicy")
    elif spec.get("successPolicy"):
        errors.append(fields.invalid("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode"))
    allowed = ("Failed",) if spec.get("podFailurePolicy") else _REPLACEMENTS
    if spec.get("podReplacementPolicy") not in allowed:
        errors.append(fields.not_supported("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), allowed))
    errors += check_template(spec["template"], "spec.template")
    errors += _check_restart_policy(spec)
    errors += _check_selector(spec)
    errors += _check_host_names(new, spec)
    return errors + (_check_update(spec, old["spec"], old) if old is not None else [])


def _check_generated_selector(job: Object, spec: Object) -> list[FieldError]:
    """Checks a generated selector and the corresponding labels."""
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return []
    errors: list[FieldError] = []
    labels = _get_labels(spec)
    own = _own_labels(job["metadata"])
    for key, value in own.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in (labels or {}):
            errors.append(fields.required(path, f"must be '{value}'"))
        elif (labels or {})[key] != value:
            errors.append(fields.invalid(path, labels, f"must be '{value}'"))
    if not _selects(selector, own):
        errors.append(fields.invalid("spec.selector", selector, "`selector` not auto-generated"))
    return errors


def _get_labels(spec: Object) -> dict[str, str] | None:
    return dict(sorted((spec["template"]["metadata"].get("labels") or {}).items())) or None


def _check_selector(spec: Object) -> list[FieldError]:
    selector, labels = spec.get("selector"), _get_labels(spec)
    if selector is None:
        errors = [fields.required("spec.selector")]
    else:
        errors = check_label_selector(selector, "spec.selector")
    if not _selects(selector, labels or {}):
        text = "`selector` does not match template `labels`"
        errors.append(fields.invalid("spec.template.metadata.labels", labels, text))
    return errors


def _selects(selector: Object | None, labels: dict[str, str]) -> bool:
    try:
        parsed = parse_object(selector)
    except StatusError:
        return True  # `check_label_selector` reports the error
    return parsed is not None and parsed.matches(labels)


def _check_mode(spec: Object) -> list[FieldError]:
    mode = spec.get("completionMode")
    if mode == "Indexed":
        return _check_indexed(spec)
    errors = [] if mode in _MODES else [fields.not_supported("spec.completionMode", mode, _MODES)]
    if mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                errors.append(fields.invalid(f"spec.{name}", spec[name], "requires indexed completion mode"))
    return errors


def _check_indexed(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    most, at_most = spec.get("maxFailedIndexes"), "must be less than or equal to"
    if completions is None:
        errors.append(fields.required("spec.completions", "when completion mode is Indexed"))
    if parallelism > _MOST_INDEXES:
        text = f"{at_most} {_MOST_INDEXES} when completion mode is Indexed"
        errors.append(fields.invalid("spec.parallelism", parallelism, text))
    if completions is not None and most is not None and most > completions:
        errors.append(fields.invalid("spec.maxFailedIndexes", most, f"{at_most} completions"))
    if most is not None and most > _MOST_INDEXES:
        errors.append(fields.invalid("spec.maxFailedIndexes", most, f"{at_most} {_MOST_INDEXES}"))
    if (completions or 0) <= _MOST_INDEXES or "backoffLimitPerIndex" not in spec:
        return errors
    text = f"{at_most} {_MOST_OF_MANY} when completions are above {_MOST_INDEXES} and used with backoff limit per index"
    if most is None:
        rule = f"must be specified when completions is above {_MOST_INDEXES}"
        errors.append(fields.required("spec.maxFailedIndexes", rule))
    if parallelism > _MOST_OF_MANY:
        errors.append(fields.invalid("spec.parallelism", parallelism, text))
    if most is not None and most > _MOST_OF_MANY:
        errors.append(fields.invalid("spec.maxFailedIndexes", most, text))
    return errors


def _check_host_names(job: Object, spec: Object) -> list[FieldError]:
    """Checks the host name of the last index, which is the longest."""
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != "Indexed" or completions < 1:
        return []
    name = job["metadata"].get("name", "")
    longest = f"{name}-{completions - 1}"
    if not names.label(longest):
        return []
    return [fields.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {longest}")]


def _check_manager(value: str, path: str) -> list[FieldError]:
    domain, slash, rest = value.partition("/")
    if not value:
        errors = [fields.required(path)]
    elif not slash or not domain or not rest:
        errors = [fields.invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    else:
        errors = [fields.invalid(path, domain, complaint) for complaint in names.subdomain(domain)]
        if _PATH.fullmatch(rest) is None:
            text = f"Invalid path (regex used for validation is '{_PATH.pattern}')"
            errors.append(fields.invalid(path, rest, text))
    return errors + ([fields.too_long(path, 63)] if len(value) > 63 else [])


def _check_restart_policy(spec: Object) -> list[FieldError]:
    policy = spec["template"]["spec"].get("restartPolicy")
    path, allowed = "spec.template.spec.restartPolicy", ("OnFailure", "Never")
    if policy in (None, "", "Always"):
        return [fields.required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in allowed:
        return [fields.not_supported(path, policy, allowed)]
    if spec.get("podFailurePolicy") and policy != "Never":
        return [fields.invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _check_update(spec: Object, before: Object, old: Object) -> list[FieldError]:
    text = "field is immutable"
    errors = _check_completions(spec, before)
    if spec.get("selector") != before.get("selector"):
        errors.append(fields.invalid("spec.selector", spec.get("selector"), text))
    errors += _check_template_update(spec["template"], before, old)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        if spec.get(name) != before.get(name):
            errors.append(fields.invalid(f"spec.{name}", spec.get(name), text))
    return errors


def _check_completions(spec: Object, before: Object) -> list[FieldError]:
    completions = spec.get("completions")
    if completions == before.get("completions"):
        return []
    if spec.get("completionMode") != "Indexed":
        return [fields.invalid("spec.completions", completions, "field is immutable")]
    if completions is None or completions == spec.get("parallelism"):
        return []
    text = "can only be modified in tandem with spec.parallelism"
    return [fields.invalid("spec.completions", completions, text)]


def _check_template_update(template: Object, before: Object, old: Object) -> list[FieldError]:
    """While a Job is suspended and has no Pods, scheduling fields and resources may change."""
    status = old.get("status") or {}
    started = "startTime" in status and not cells.is_condition_true(old, "Suspended")
    if not before.get("suspend") or started or status.get("active"):
        if template == before["template"]:
            return []
        return [fields.invalid("spec.template", template, "field is immutable")]
    if _fixed_part(template["spec"]) == _fixed_part(before["template"]["spec"]):
        return []
    return [fields.invalid("spec.template.spec", template["spec"], "field is immutable")]


def _fixed_part(spec: Object) -> Object:
    pod = {k: v for k, v in spec.items() if k not in ("nodeSelector", "tolerations", "schedulingGates")}
    affinity = dict(pod.pop("affinity", None) or {})
    affinity.pop("nodeAffinity", None)
    for kind in ("containers", "initContainers"):
        if kind in pod:
            pod[kind] = [{k: v for k, v in container.items() if k != "resources"} for container in pod[kind]]
    return {**pod, "affinity": affinity}


def warnings(new: Object, old: Object | None) -> list[str]:
    spec = new["spec"]
    found: list[str] = []
    if old is None and (complaints := names.label(new["metadata"].get("name", ""))):
        text = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior;"
        found.append(f"{text} a DNS label is recommended: [{' '.join(complaints)}]")
    if spec.get("completionMode") != "Indexed" or (old is not None and old["spec"] == spec):
        return found
    if spec.get("completions", 0) > _MOST_INDEXES and spec.get("parallelism", 0) > _MOST_OF_MANY:
        text = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4,"
        rest = "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        found.append(f"spec: {text} {rest}")
    return found


def get_status(job: Object, now: float = 0) -> str:
    for word in ("Complete", "Failed"):
        if cells.is_condition_true(job, word):
            return word
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    for word in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if cells.is_condition_true(job, word):
            return word
    return "Running"


def _get_completions(job: Object, now: float) -> str:
    spec, done = job.get("spec") or {}, (job.get("status") or {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _get_duration(job: Object, now: float) -> str:
    status = job.get("status") or {}
    start, end = status.get("startTime"), status.get("completionTime")
    if not start:
        return ""
    return cells.render_duration((cells.seconds_of(end) if end else now) - cells.seconds_of(start))


def list_gangs(job: Fields) -> Iterator[tuple[int, Fields]]:
    spec = read_spec(job)
    yield int(spec.get("parallelism") or 1), read_fields(spec, "template")


JOB = Kind(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    singular="job",
    namespaced=True,
    definition="io.k8s.api.batch.v1.Job",
    load=partial(load, "io.k8s.api.batch.v1.Job"),
    categories=("all",),
    status=True,
    columns=(
        cells.NAME,
        Column("Status", get_status, description="What the Job is doing, in one word."),
        Column("Completions", _get_completions, description="Succeeded Pods of those wanted."),
        Column("Duration", _get_duration, description="How long it has run, or ran."),
        cells.AGE,
        *TEMPLATE_COLUMNS,
    ),
    default=default,
    validate=validate,
    validate_status=check_status,
    prepare=prepare,
    warnings=warnings,
    deletions=DeletionRules(orphan_warning=_ORPHAN_WARNING),
    quotas=QuotaRules(writes_data=True),
    # Nothing is reserved, because the server itself writes such labels into the template.
    tenants=TenantRules(list_gangs=list_gangs, controlled=True),
    selectable={"status.successful": lambda job: str((job.get("status") or {}).get("succeeded", 0))},
    roles={"view": {"": READ, "status": READ}, "edit": {"": WRITE, "status": WRITE}, "tenant": {"": READ}},
    fidelity={**OBJECT, "spec": JOB_SPEC, "status": H},
)

KINDS = (JOB,)
