"""The objects of an installation: where each kind is found, whose an object is, and which stay when it is removed.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.api import resources
from trainmaster.api.labels import INSTALLATION
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_annotations, read_labels

MANAGED_BY = "app.kubernetes.io/managed-by"
OURS, HELM = "trainmaster", "Helm"
_RESOURCE_POLICY = "helm.sh/resource-policy"
_RELEASE, _RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

_COLLECTIONS: Mapping[str, GVR] = {
    "Namespace": resources.NAMESPACES,
    "CustomResourceDefinition": resources.CUSTOM_RESOURCE_DEFINITIONS,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "ClusterRole": resources.CLUSTER_ROLES,
    "ClusterRoleBinding": resources.CLUSTER_ROLE_BINDINGS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
    "ConfigMap": resources.CONFIG_MAPS,
    "Secret": resources.SECRETS,
    "Service": resources.SERVICES,
    "PersistentVolumeClaim": resources.PERSISTENT_VOLUME_CLAIMS,
    "Deployment": resources.DEPLOYMENTS,
    "PodDisruptionBudget": resources.POD_DISRUPTION_BUDGETS,
    "NetworkPolicy": resources.NETWORK_POLICIES,
    "APIService": resources.API_SERVICES,
    "MutatingWebhookConfiguration": resources.MUTATING_WEBHOOK_CONFIGURATIONS,
    "ValidatingWebhookConfiguration": resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
    "ServiceMonitor": resources.SERVICE_MONITORS,
    "PrometheusRule": resources.PROMETHEUS_RULES,
    "Certificate": resources.CERTIFICATES,
    "Issuer": resources.ISSUERS,
}
WEBHOOKS = (resources.MUTATING_WEBHOOK_CONFIGURATIONS, resources.VALIDATING_WEBHOOK_CONFIGURATIONS)
ANSWERED = (*WEBHOOKS, resources.API_SERVICES)
"""What API servers ask the operator's Pods through. While nobody answers, no job can be created and no namespace be
deleted, so they are deleted first."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object of an installation."""

    gvr: GVR
    kind: str
    namespace: str
    name: str
    kept: bool
    """It stays when the installation is removed, because jobs or records would be lost with it."""

    @property
    def title(self) -> str:
        """As kubectl prints it, with its namespace."""
        kind = f"{self.kind.lower()}.{self.gvr.group}" if self.gvr.group else self.kind.lower()
        return f"{kind}/{self.name}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def place(self) -> tuple[GVR, str, str]:
        """The same for all versions of an installation."""
        return self.gvr, self.namespace, self.name


def refer(obj: Fields) -> ObjectReference:
    """KeyError for a kind that no installation has."""
    meta, kind = obj["metadata"], str(obj["kind"])
    kept = kind == "Namespace" or read_annotations(obj).get(_RESOURCE_POLICY) == "keep"
    return ObjectReference(_COLLECTIONS[kind], kind, meta.get("namespace", ""), meta["name"], kept)


def to_record(reference: ObjectReference) -> Object:
    group, version, plural = reference.gvr
    place = {"namespace": reference.namespace, "name": reference.name, "kept": reference.kept}
    return {"group": group, "version": version, "plural": plural, "kind": reference.kind, **place}


def read_record(record: Fields) -> ObjectReference:
    """KeyError or TypeError if it is none."""
    gvr = GVR(record["group"], record["version"], record["plural"])
    return ObjectReference(gvr, record["kind"], record["namespace"], record["name"], bool(record["kept"]))


def mark(obj: Fields, namespace: str) -> Object:
    """Says in the object whose it is."""
    meta = obj["metadata"]
    labels = {**meta.get("labels", {}), MANAGED_BY: OURS, INSTALLATION: namespace}
    return {**obj, "metadata": {**meta, "labels": labels}}


def is_marked(obj: Fields, namespace: str) -> bool:
    return read_labels(obj).get(INSTALLATION) == namespace


def is_left_by_helm(obj: Fields) -> bool:
    """If it is one that stays: the rest of a release of ours."""
    labels = read_labels(obj)
    return labels.get(MANAGED_BY) == HELM and labels.get("app.kubernetes.io/part-of") == OURS


def find_other_owner(obj: Fields, reference: ObjectReference, namespace: str) -> str:
    """Why an object that exists cannot be taken into the installation in this namespace; "" if it can."""
    labels, notes = read_labels(obj), read_annotations(obj)
    other = labels.get(INSTALLATION, namespace)
    if other != namespace:
        return (
            f"{reference.title} belongs to the installation in namespace {other}: use `trainmaster operator upgrade "
            f"--namespace {other}`, or give this one a name and namespaces of its own (docs/scale.md)"
        )
    if labels.get(MANAGED_BY) == HELM and not reference.kept:
        release, place = notes.get(_RELEASE, "?"), notes.get(_RELEASE_NAMESPACE, "?")
        return (
            f"{reference.title} belongs to the Helm release {release} in namespace {place}: use `helm upgrade`, or "
            f"`helm uninstall {release} -n {place}` first, which jobs survive"
        )
    return ""
