"""Job: Pods that run to completion. Its Pod template obeys the rules of `api.pods`."""

from __future__ import annotations

from functools import partial

from trainmaster.api import cells, fields
from trainmaster.api.fields import OMIT, FieldError
from trainmaster.api.kinds import Column, Kind
from trainmaster.api.labels import CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME
from trainmaster.api.meta import Object
from trainmaster.api.pods.defaults import default_spec
from trainmaster.api.pods.validation import check_template
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_MOST_INDEXES = 100_000
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
            pattern.setdefault("status", "True")


def prepare(job: Object) -> None:
    """The selector and the labels by which a Job finds its Pods, in both spellings. Needs uid and name."""
    spec, metadata = job["spec"], job["metadata"]
    job["status"] = {}
    template = spec["template"]["metadata"]
    if not spec["manualSelector"]:
        labels = dict(template.get("labels") or {})
        for key, value in _own_labels(metadata).items():
            labels.setdefault(key, value)
        template["labels"] = labels
        selector = spec.setdefault("selector", {})
        selector["matchLabels"] = dict(selector.get("matchLabels") or {}) | {CONTROLLER_UID: metadata["uid"]}
    if not metadata.get("labels") and template.get("labels"):
        metadata["labels"] = dict(template["labels"])


def _own_labels(metadata: Object) -> dict[str, str]:
    uid, name = metadata["uid"], metadata.get("name", "")
    return {LEGACY_CONTROLLER_UID: uid, LEGACY_JOB_NAME: name, CONTROLLER_UID: uid, JOB_NAME: name}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new["spec"]
    errors = _check_selector(new, spec)
    text = "must be greater than or equal to 0"
    given = ((name, spec[name]) for name in _NOT_NEGATIVE if name in spec)
    errors += [fields.invalid(f"spec.{name}", value, text) for name, value in given if value < 0]
    errors += _check_mode(new, spec)
    if spec.get("podReplacementPolicy") not in _REPLACEMENTS:
        allowed = _REPLACEMENTS
        errors.append(fields.not_supported("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), allowed))
    if policy := spec.get("podFailurePolicy"):
        errors += _check_failure_policy(policy, spec, "spec.podFailurePolicy")
    if "managedBy" in spec:
        errors += _check_manager(spec["managedBy"], "spec.managedBy")
    errors += check_template(spec["template"], "spec.template")
    errors += _check_restart_policy(spec["template"]["spec"].get("restartPolicy"))
    return errors + (_check_update(spec, old["spec"], old) if old is not None else [])


def _check_selector(job: Object, spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    selector = spec.get("selector")
    labels = dict(sorted((spec["template"]["metadata"].get("labels") or {}).items())) or None
    path = "spec.template.metadata.labels"
    if selector is None:
        errors.append(fields.required("spec.selector"))
    elif not spec.get("manualSelector"):
        own = _own_labels(job["metadata"])
        for key, value in own.items():
            if key not in (labels or {}):
                errors.append(fields.required(f"{path}[{key}]", f"must be '{value}'"))
            elif (labels or {})[key] != value:
                errors.append(fields.invalid(f"{path}[{key}]", labels, f"must be '{value}'"))
        wanted = {"matchLabels": {CONTROLLER_UID: job["metadata"].get("uid")}}
        legacy = {"matchLabels": {LEGACY_CONTROLLER_UID: job["metadata"].get("uid")}}
        if selector not in (wanted, legacy):
            errors.append(fields.invalid("spec.selector", selector, "`selector` not auto-generated"))
    if not _selects(selector, labels or {}):
        errors.append(fields.invalid(path, labels, "`selector` does not match template `labels`"))
    return errors


def _selects(selector: Object | None, labels: dict[str, str]) -> bool:
    """Whether the equality part of a selector matches. Expressions are up to the owner of a manual selector."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())


def _check_mode(job: Object, spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    mode = spec.get("completionMode")
    if mode not in _MODES:
        errors.append(fields.not_supported("spec.completionMode", mode, _MODES))
    if mode == "Indexed":
        if "completions" not in spec:
            errors.append(fields.required("spec.completions", "when completion mode is Indexed"))
        if spec.get("parallelism", 0) > _MOST_INDEXES:
            text = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
            errors.append(fields.invalid("spec.parallelism", spec["parallelism"], text))
        return errors
    text = "requires indexed completion mode"
    if "backoffLimitPerIndex" in spec:
        errors.append(fields.invalid("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], text))
    elif "maxFailedIndexes" in spec:
        errors.append(fields.required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "maxFailedIndexes" in spec:
        errors.append(fields.invalid("spec.maxFailedIndexes", spec["maxFailedIndexes"], text))
    if "successPolicy" in spec:
        errors.append(fields.invalid("spec.successPolicy", spec["successPolicy"], text))
    return errors


def _check_failure_policy(policy: Object, spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(policy.get("rules") or ()):
        where = f"{path}.rules[{index}]"
        if rule.get("action") not in _ACTIONS:
            errors.append(fields.not_supported(f"{where}.action", rule.get("action", ""), _ACTIONS))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            errors += _check_exit_codes(codes, f"{where}.onExitCodes")
        for position, pattern in enumerate(conditions or ()):
            if pattern.get("status") not in ("False", "True", "Unknown"):
                at = f"{where}.onPodConditions[{position}].status"
                errors.append(fields.not_supported(at, pattern.get("status"), ("False", "True", "Unknown")))
        if codes is not None and conditions:
            text = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(fields.invalid(where, OMIT, text))
        if codes is None and not conditions:
            text = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(fields.invalid(where, OMIT, text))
    if spec.get("podReplacementPolicy") not in ("Failed", None):
        errors.append(fields.not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], ("Failed",)))
    restart = spec["template"]["spec"].get("restartPolicy")
    if restart != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(fields.invalid("spec.template.spec.restartPolicy", restart, text))
    return errors


def _check_exit_codes(codes: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = codes.get("operator"), codes.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.append(fields.not_supported(f"{path}.operator", operator or "", ("In", "NotIn")))
    if not values:
        errors.append(fields.invalid(f"{path}.values", [], "at least one value is required"))
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            errors.append(fields.invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator"))
    return errors


def _check_manager(value: str, path: str) -> list[FieldError]:
    domain, slash, rest = value.partition("/")
    if not slash or not rest or names.subdomain(domain) or "." not in domain:
        return [fields.invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    return [fields.too_long(path, 63)] if len(value) > 63 else []


def _check_restart_policy(policy: str | None) -> list[FieldError]:
    path, allowed = "spec.template.spec.restartPolicy", ("OnFailure", "Never")
    if policy in allowed:
        return []
    if policy in (None, "Always"):
        return [fields.required(path, 'valid values: "OnFailure", "Never"')]
    return [fields.not_supported(path, policy, allowed)]


def _check_update(spec: Object, before: Object, old: Object) -> list[FieldError]:
    text = "field is immutable"
    errors: list[FieldError] = []
    if spec.get("completions") != before.get("completions") and not _scales_elastically(spec, before):
        errors.append(fields.invalid("spec.completions", spec.get("completions"), text))
    for name in (
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        if spec.get(name) != before.get(name):
            errors.append(fields.invalid(f"spec.{name}", spec.get(name), text))
    if _fixed_template(spec, before, old) != _fixed_template(before, before, old):
        errors.append(fields.invalid("spec.template", spec["template"], text))
    return errors


def _scales_elastically(spec: Object, before: Object) -> bool:
    """An Indexed Job may change completions together with parallelism, to the same number."""
    return spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")


def _fixed_template(spec: Object, before: Object, old: Object) -> Object:
    """The part of the template that may not change. While suspended, what decides where Pods run may."""
    template: Object = spec["template"]
    status = old.get("status") or {}
    started = "startTime" in status and not cells.is_condition_true(old, "Suspended")
    if not before.get("suspend") or started or status.get("active"):
        return template
    pod = {k: v for k, v in template["spec"].items() if k not in ("nodeSelector", "tolerations", "schedulingGates")}
    affinity = dict(pod.pop("affinity", None) or {})
    affinity.pop("nodeAffinity", None)
    for kind in ("containers", "initContainers"):
        if kind in pod:
            pod[kind] = [{k: v for k, v in container.items() if k != "resources"} for container in pod[kind]]
    metadata = {k: v for k, v in template["metadata"].items() if k not in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod, "affinity": affinity}


def warnings(new: Object, old: Object | None) -> list[str]:
    if old is not None or not (complaints := names.label(new["metadata"].get("name", ""))):
        return []
    text = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior;"
    return [f"{text} a DNS label is recommended: [{' '.join(complaints)}]"]


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


def _list_containers(field: str, job: Object, now: float) -> str:
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    return cells.join(str(container.get(field, "")) for container in pod.get("containers") or ())


def _get_selector(job: Object, now: float) -> str:
    return cells.format_labels(((job.get("spec") or {}).get("selector") or {}).get("matchLabels"))


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
        Column("Containers", partial(_list_containers, "name"), priority=1),
        Column("Images", partial(_list_containers, "image"), priority=1),
        Column("Selector", _get_selector, priority=1),
    ),
    default=default,
    validate=validate,
    prepare=prepare,
    warnings=warnings,
    selectable={"status.successful": lambda job: str((job.get("status") or {}).get("succeeded", 0))},
)

KINDS = (JOB,)
