"""What a cluster needs so that its API servers pass requests for records on to the operator. Pure.

APIService v1alpha1.records.trainmaster.dev   where to
ClusterRole, ClusterRoleBinding               everybody who is authenticated may ask; the operator decides
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import API_SERVICES, JOB_RECORDS, RBAC_GROUP
from trainmaster.operator.templating.nodes import Tree
from trainmaster.operator.webhooks.bundles import BundleTarget, is_injected

PORT = 8444
NAME = f"{JOB_RECORDS.version}.{JOB_RECORDS.group}"
"""Of the APIService."""
READER = "trainmaster-records-reader"
SECRET = "trainmaster-records-tls"
_PRIORITIES = {"groupPriorityMinimum": 1000, "versionPriority": 15}


@dataclass(frozen=True, slots=True)
class RecordsPlan:
    """How API servers reach the operator's records."""

    namespace: Tree
    """Of the Service."""
    service: str
    service_port: int = PORT
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the APIService, for example `cert-manager.io/inject-ca-from`."""
    ca_bundle: str = ""
    """base64. Empty: the operator fills it in, or cert-manager."""


def build_records_api(plan: RecordsPlan) -> list[Object]:
    """The Service must have the port."""
    meta: Object = {"name": NAME, **({"annotations": dict(plan.annotations)} if plan.annotations else {})}
    service = {"namespace": plan.namespace, "name": plan.service, "port": plan.service_port}
    spec: Object = {"group": JOB_RECORDS.group, "version": JOB_RECORDS.version, "service": service, **_PRIORITIES}
    if plan.ca_bundle:
        spec["caBundle"] = plan.ca_bundle
    return [
        {"apiVersion": API_SERVICES.api_version, "kind": "APIService", "metadata": meta, "spec": spec},
        *_build_reader(),
    ]


def build_service_port(port: int = PORT) -> Object:
    return {"name": "records", "port": port, "targetPort": port, "protocol": "TCP"}


def _build_reader() -> Sequence[Object]:
    """API servers ask their own authorizer before they pass a request on. What somebody may read is decided by the
    operator, from their rights to the jobs, so nobody has to be granted anything more."""
    resources = [JOB_RECORDS.plural, f"{JOB_RECORDS.plural}/log"]
    rules = [{"apiGroups": [JOB_RECORDS.group], "resources": resources, "verbs": ["get", "list"]}]
    head = {"apiVersion": f"{RBAC_GROUP}/v1", "metadata": {"name": READER}}
    everybody = {"kind": "Group", "apiGroup": RBAC_GROUP, "name": "system:authenticated"}
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": READER}
    return (
        {**head, "kind": "ClusterRole", "rules": rules},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [everybody]},
    )


def repair(service: Object, bundle: str) -> Object | None:
    """The APIService with this `caBundle`; None if it has it already, or it is not ours to set."""
    if is_injected(service) or read_text(service, "spec", "caBundle") == bundle:
        return None
    spec = {key: value for key, value in service["spec"].items() if key != "insecureSkipTLSVerify"}
    return {**service, "spec": {**spec, "caBundle": bundle}}


TARGET = BundleTarget(API_SERVICES, NAME, repair, "records of jobs cannot be read through this cluster")
