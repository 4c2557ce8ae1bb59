"""Pod: what the node runs. The rules of its spec are in `api.pods`, which Job templates share."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring.fidelity_tables import OBJECT, POD_SPEC, H
from trainmaster.api.declaring.kinds import (
    ALL_VERBS,
    READ,
    WRITE,
    DeletionRules,
    Kind,
    QuotaRules,
    Subresource,
    TenantRules,
    UpdateRules,
)
from trainmaster.api.fields import FieldError
from trainmaster.api.labels import RESERVED_ON_PODS
from trainmaster.api.meta import Fields, Object
from trainmaster.api.pods.defaults import default_pod
from trainmaster.api.pods.phases import is_over
from trainmaster.api.pods.printing import COLUMNS
from trainmaster.api.pods.quotas import Usage, list_unspecified, measure_pod
from trainmaster.api.pods.resources import quality_of_service
from trainmaster.api.pods.validation import check_pod, check_update
from trainmaster.api.reading import read_spec
from trainmaster.api.schemas import load
from trainmaster.api.validation import names


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors = check_pod(new.get("spec") or {})
    if old is not None:
        return errors + check_update(new, old)
    if (new.get("spec") or {}).get("ephemeralContainers"):
        errors.append(fields.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return errors


def prepare(pod: Object) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(pod["spec"])}


def warnings(new: Object, old: Object | None) -> list[str]:
    if old is not None or not (complaints := names.label(new["metadata"].get("name", ""))):
        return []
    text = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior;"
    return [f"{text} a DNS label is recommended: [{' '.join(complaints)}]"]


def get_grace(pod: Object, asked: int | None) -> int:
    """The grace period in seconds; 0 for a Pod that is not bound or has ended."""
    spec = read_spec(pod)
    if not spec.get("nodeName") or is_over(pod):
        return 0
    if asked is not None:
        return max(0, asked)
    grace: int = spec.get("terminationGracePeriodSeconds", 30)
    return grace if grace >= 0 else 1


def measure(pod: Object) -> Usage:
    """As upstream, quotas only count Pods that have not finished."""
    return {} if is_over(pod) else {"pods": Fraction(1), **measure_pod(pod["spec"])}


def _list_unspecified(pod: Object, hard: Fields) -> list[str]:
    return list_unspecified(pod["spec"], hard)


def _spec(name: str) -> partial[str]:
    return partial(_get_text, "spec", name)


def _get_text(part: str, name: str, pod: Object) -> str:
    value = (pod.get(part) or {}).get(name, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


_SESSIONS = ("attach", "exec", "portforward")

POD = Kind(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    namespaced=True,
    definition="io.k8s.api.core.v1.Pod",
    load=partial(load, "io.k8s.api.core.v1.Pod"),
    short_names=("po",),
    categories=("all",),
    status=True,
    subresources=(
        Subresource("binding", ("create",), version="v1", kind="Binding"),
        Subresource("eviction", ("create",), "policy", "v1", "Eviction"),
        Subresource("log", ("get",), version="v1", kind="Pod"),
    ),
    columns=COLUMNS,
    default=default_pod,
    validate=validate,
    prepare=prepare,
    warnings=warnings,
    light={"nodeName": names.subdomain},
    selectable={
        "spec.nodeName": _spec("nodeName"),
        "spec.restartPolicy": _spec("restartPolicy"),
        "spec.schedulerName": _spec("schedulerName"),
        "spec.serviceAccountName": _spec("serviceAccountName"),
        "spec.hostNetwork": lambda pod: "true" if (pod.get("spec") or {}).get("hostNetwork") else "false",
        "status.phase": partial(_get_text, "status", "phase"),
        "status.podIP": partial(_get_text, "status", "podIP"),
        "status.nominatedNodeName": partial(_get_text, "status", "nominatedNodeName"),
    },
    updates=UpdateRules(status_keeps=("ownerReferences",)),
    deletions=DeletionRules(grace=get_grace, answers_with_object=True),
    quotas=QuotaRules(measure=measure, list_unspecified=_list_unspecified, writes_data=True),
    tenants=TenantRules(reserved=RESERVED_ON_PODS, controlled=True),
    roles={
        "view": {"": READ, "log": READ, "status": READ},
        "edit": {"": WRITE, "eviction": ("create",), **dict.fromkeys((*_SESSIONS, "proxy"), ALL_VERBS)},
        # No update: the annotations record what the scheduler and the node have assigned.
        "tenant": {
            "": (*READ, "create", "delete", "deletecollection"),
            "log": ("get",),
            "status": ("get",),
            **dict.fromkeys(_SESSIONS, ("get", "create")),
        },
    },
    fidelity={**OBJECT, "spec": POD_SPEC, "status": H},
)
