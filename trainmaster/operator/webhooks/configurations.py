"""Which requests API servers send to the operator: the MutatingWebhookConfiguration and the
ValidatingWebhookConfiguration `trainmaster-operator`.

`matchConditions` keep a cluster working while no operator answers: what changes only the status, whether a job is
suspended, or metadata that means nothing to us is not sent here at all. Neither is what the operator writes itself, so
that it can install the shipped runtimes before it serves, nor what Kubernetes deletes when it cleans up a namespace.
The conditions are CEL; the API server has type-checked nothing of a new object when defaults are filled in.

`describe_configurations` says it for all values of an installation (`templating`), `build_configurations` for one plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.api.admission.reserved import MASTERS
from trainmaster.api.admission.writes import RUNTIMES, get_webhook
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.lifecycle import mirrors, policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.tenancy import TENANT
from trainmaster.api.training.overrides import OLDER
from trainmaster.api.v1jobs.frameworks import BY_KIND, GROUP
from trainmaster.controllers.install import list_manifests
from trainmaster.jobs.models.v1jobs import MODELS, V1Job
from trainmaster.operator.names import NAME
from trainmaster.operator.templating.evaluating import ValueScope, evaluate
from trainmaster.operator.templating.nodes import ALL_OF, Has, Text, Tree, Value, When

PORT = 9443
DEFAULT_PATH, VALIDATE_PATH, RESERVED_PATH = "/default", "/validate", "/validate-reserved"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_PREFIX = "trainmaster.dev/"
_CLEANERS = (
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    # Where the controller manager has one identity for all of its controllers.
    "system:kube-controller-manager",
)


@dataclass(frozen=True, slots=True)
class WebhookPlan:
    """How API servers reach the webhooks, and for which requests. Where a `Tree` may stand, so may a value of an
    installation."""

    operator: Tree
    """The user name of the operator, whose own writes are not sent to it."""
    namespace: Tree = ""
    """Of the Service."""
    service: str = NAME
    service_port: int = 443
    url: str = ""
    """Instead of the Service: https://HOST:PORT, for API servers that reach the operator directly."""
    failure_policy: Tree = "Fail"
    timeout_seconds: Tree = 5
    namespaces: Sequence[str] | Value = ()
    """Only jobs and runtimes in these namespaces; empty is all."""
    v1_jobs: Sequence[type[V1Job]] | Value = ()
    annotations: Tree = field(default_factory=dict)
    """Of both configurations, for example `cert-manager.io/inject-ca-from`."""
    ca_bundle: str = ""
    """base64. Empty: the operator fills it in, or cert-manager."""
    name: Tree = NAME
    """Of both configurations."""


def build_configurations(plan: WebhookPlan) -> list[Object]:
    """Of a plan without values."""
    built = evaluate(describe_configurations(plan), ValueScope({}, ""))
    assert isinstance(built, list)
    return built


def describe_configurations(plan: WebhookPlan) -> list[Object]:
    kinds = _list_kinds(plan)
    defaulting = [_where(plan, kind, _build_defaulting(plan, kind)) for kind in kinds if kind.gvr not in RUNTIMES]
    validating = [_where(plan, kind, _build_validating(plan, kind)) for kind in kinds]
    reserved = [_where(plan, kind, _build_reserved(plan, kind)) for kind in kinds if kind.namespaced]
    return [
        _build(plan, "MutatingWebhookConfiguration", defaulting),
        _build(plan, "ValidatingWebhookConfiguration", [*validating, *reserved, _build_policy(plan)]),
    ]


def _list_kinds(plan: WebhookPlan) -> list[Kind]:
    """All that there may be."""
    found = catalogue.build()
    models = MODELS if isinstance(plan.v1_jobs, Value) else plan.v1_jobs
    wanted = (TRAIN_JOBS, *RUNTIMES, *(model.gvr for model in models))
    return [kind for kind in (found.find(gvr) for gvr in wanted) if kind is not None]


def _where(plan: WebhookPlan, kind: Kind, webhook: Object) -> Tree:
    """Only if the operator runs such jobs."""
    if kind.group == GROUP and isinstance(plan.v1_jobs, Value):
        return When(Has(plan.v1_jobs.path, ALL_OF, kind.singular), webhook)
    return webhook


def _build(plan: WebhookPlan, kind: str, webhooks: list[Tree]) -> Object:
    metadata: Object = {"name": plan.name}
    if plan.annotations:
        metadata["annotations"] = plan.annotations
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _build_webhook(
    plan: WebhookPlan,
    name: str,
    path: str,
    rules: list[Object],
    conditions: Mapping[str, Tree],
    namespaces: Sequence[Object] = (),
) -> Object:
    client: Object = {"url": f"{plan.url}{path}"}
    if not plan.url:
        place = {"namespace": plan.namespace, "name": plan.service}
        client = {"service": {**place, "path": path, "port": plan.service_port}}
    if plan.ca_bundle:
        client["caBundle"] = plan.ca_bundle
    return {
        "name": name,
        "clientConfig": client,
        "rules": rules,
        "matchConditions": [{"name": key, "expression": text} for key, text in conditions.items()],
        "namespaceSelector": _build_selector(plan.namespaces, namespaces),
        "failurePolicy": plan.failure_policy,
        "timeoutSeconds": plan.timeout_seconds,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _build_selector(names: Sequence[str] | Value, more: Sequence[Object]) -> Tree:
    among: Object = {"key": _NAMESPACE_NAME, "operator": "In", "values": names}
    if not isinstance(names, Value):
        expressions = [*([{**among, "values": list(names)}] if names else ()), *more]
        return {"matchExpressions": expressions} if expressions else {}
    if more:
        return {"matchExpressions": [*more, When(names, among)]}
    return When(names, {"matchExpressions": [among]}, {})


def _build_rule(gvr: GVR, operations: Sequence[str], *, namespaced: bool = True) -> Object:
    return {
        "apiGroups": [gvr.group],
        "apiVersions": [gvr.version],
        "resources": [gvr.plural],
        "operations": list(operations),
        "scope": "Namespaced" if namespaced else "Cluster",
    }


def _build_defaulting(plan: WebhookPlan, kind: Kind) -> Object:
    rules = [_build_rule(kind.gvr, ("CREATE", "UPDATE"))]
    name = get_webhook(kind, "defaulter")
    webhook = _build_webhook(plan, name, DEFAULT_PATH, rules, {"has-something-to-fill-in": _find_gap(kind)})
    return {**webhook, "reinvocationPolicy": "Never"}


def _find_gap(kind: Kind) -> str:
    new = _read_spec("object")
    if kind.group != GROUP:
        field, old = "runtimePatches", _read_spec("oldObject")
        changed = f"request.operation != 'UPDATE' || !('{field}' in {old}) || {new}.{field} != {old}.{field}"
        return f"'{field}' in {new} && ({changed}) || {_changes_terms(new, old)}"
    replicas = BY_KIND[kind.kind].replicas_field
    run_policy = f"{new}.runPolicy"
    unset = f"type({run_policy}) == map && !('suspend' in {run_policy})"
    return f"'{replicas}' in {new} && (!('runPolicy' in {new}) || {unset})"


def _changes_terms(new: str, old: str) -> str:
    """Terms are mirrored into annotations of ours, and put back if a client drops them."""
    names = f"[{', '.join(repr(name) for name in mirrors.FIELDS)}]"
    changed = f"{names}.exists(k, (k in {new}) != (k in {old}) || (k in {new} && {new}[k] != {old}[k]))"
    present = f"{names}.exists(k, k in {new})"
    update = f"{changed} || ({present} && {_differs_in_our_annotations()})"
    return f"(request.operation != 'UPDATE' ? {present} : ({update}))"


def _build_validating(plan: WebhookPlan, kind: Kind) -> Object:
    is_runtime = kind.gvr in RUNTIMES
    operations = ("CREATE", "UPDATE", "DELETE") if is_runtime else ("CREATE", "UPDATE")
    rules = [_build_rule(kind.gvr, operations, namespaced=kind.namespaced)]
    changes = _join_changes(*_list_spec_changes(kind), _differs_in_our_annotations())
    conditions: dict[str, Tree] = {"changes-what-is-checked": changes}
    if is_runtime:
        cleaners = ", ".join(f"'{name}'" for name in _CLEANERS)
        conditions = {
            "is-not-by-the-operator": Text("request.userInfo.username != '", plan.operator, "'"),
            "is-not-a-clean-up": f"request.operation != 'DELETE' || !(request.userInfo.username in [{cleaners}])",
            **conditions,
        }
    if is_runtime and not kind.namespaced:
        conditions["is-not-shipped-by-another-operator"] = f"!({_is_shipped_by_any_operator()})"
    return _build_webhook(plan, get_webhook(kind), VALIDATE_PATH, rules, conditions)


def _build_reserved(plan: WebhookPlan, kind: Kind) -> Object:
    """For namespaces of tenants; administrators are exempt, as on one machine."""
    changes = [*_list_spec_changes(kind), *(_differs(f"metadata.{name}") for name in ("labels", "annotations"))]
    conditions = {
        "is-not-by-an-administrator": f"!('{MASTERS}' in request.userInfo.groups)",
        "changes-what-is-checked": _join_changes(*changes),
    }
    rules = [_build_rule(kind.gvr, ("CREATE", "UPDATE"))]
    tenants = [{"key": TENANT, "operator": "Exists"}]
    return _build_webhook(plan, f"reserved.{kind.singular}.trainmaster.dev", RESERVED_PATH, rules, conditions, tenants)


def _build_policy(plan: WebhookPlan) -> Object:
    rules = [_build_rule(CONFIG_MAPS, ("CREATE", "UPDATE"))]
    conditions = {"is-the-policy": f"object.metadata.?name.orValue('') == '{policy.NAME}'"}
    there = dataclasses.replace(plan, namespaces=(policy.NAMESPACE,))
    return _build_webhook(there, "policy.trainmaster.dev", VALIDATE_PATH, rules, conditions)


def _is_shipped_by_any_operator() -> str:
    """Several operators on a cluster each install the shipped runtimes at their start, when the webhook of another one
    may not answer."""
    names = ", ".join(f"'{name}'" for name, _ in list_manifests())
    user = "request.userInfo.username"
    is_operator = f"{user}.startsWith('system:serviceaccount:') && {user}.endsWith(':{NAME}')"
    return f"request.operation != 'DELETE' && {is_operator} && request.name in [{names}]"


# ---- CEL ---------------------------------------------------------------------


def _join_changes(*changes: str) -> str:
    """True for a creation or deletion, and for an update with one of the changes."""
    return " || ".join(("request.operation != 'UPDATE'", *changes))


def _list_spec_changes(kind: Kind) -> list[str]:
    """Of anything but whether the object is suspended."""
    if kind.gvr in RUNTIMES:
        return [_differs("spec")]
    new, old = _read_spec("object"), _read_spec("oldObject")
    if kind.group != GROUP:
        return [_differs_beside(new, old, "suspend"), _gets_queue(new)]
    new_policy, old_policy = (f"{spec}.?runPolicy.orValue({{}})" for spec in (new, old))
    return [_differs_beside(new, old, "runPolicy"), _differs_beside(new_policy, old_policy, "suspend")]


def _gets_queue(new: str) -> str:
    """A job with what Kueue drops may not get a queue later either."""
    labels = [f"{name}.metadata.?labels.orValue({{}})" for name in ("object", "oldObject")]
    gets = f"('{QUEUE_NAME}' in {labels[0]} && !('{QUEUE_NAME}' in {labels[1]}))"
    dropped = ", ".join(repr(name) for name in OLDER)
    return f"({gets} && [{dropped}].exists(k, k in {new}))"


def _read_spec(name: str) -> str:
    """The spec as a map, whatever stands there."""
    return f"(has({name}.spec) && type({name}.spec) == map ? {name}.spec : {{}})"


def _differs(path: str) -> str:
    """Of a field of metadata, or the spec."""
    head, _, last = path.rpartition(".")
    new, old = (f"{name}.{head}.?{last}" if head else f"{name}.?{last}" for name in ("object", "oldObject"))
    return f"{new} != {old}"


def _differs_beside(new: str, old: str, name: str) -> str:
    same = f"{new}.all(k, k == '{name}' || (k in {old} && {new}[k] == {old}[k]))"
    return f"!({same} && {old}.all(k, k == '{name}' || k in {new}))"


def _differs_in_our_annotations() -> str:
    """First of all whether any annotation differs, because looking at each of very many is not allowed."""
    new, old = (f"{name}.metadata.?annotations.orValue({{}})" for name in ("object", "oldObject"))
    ours = f"k.startsWith('{_PREFIX}')"
    added = f"{new}.exists(k, {ours} && !(k in {old} && {old}[k] == {new}[k]))"
    return f"({new} != {old} && ({added} || {old}.exists(k, {ours} && !(k in {new}))))"
