"""What a tenant is made of, as objects: a namespace, a ServiceAccount with a role in it, a quota. Pure.

The same on one machine and on a cluster. On one machine the namespace also names a Unix user; `apiserver.walls` lets
Pods there run as nobody else. Read by `tenancy` (which writes these objects), by admission and by the REST API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api import quantity
from trainmaster.api.meta import GVR, Object

TENANT = "trainmaster.dev/tenant"
"""Label on namespaces, by `tenancy`: whose it is."""
UNIX_USER = "trainmaster.dev/unix-user"
"""Annotation on namespaces, by `tenancy`: the user id that Pods there run as, and no other."""
DISABLED = "trainmaster.dev/tenant-disabled"
"""Annotation on namespaces, by `tenancy`: since when the tenant may do nothing."""
EXPIRES = "trainmaster.dev/token-expires"
"""Annotation on the Secret that a token is bound to."""

POD_SECURITY = "pod-security.kubernetes.io/enforce"
"""Label on namespaces, by `tenancy`: which Pods a cluster lets in there (Pod Security Admission)."""

NAME = "tenant"
"""Of everything that stands once in a tenant's namespace: ServiceAccount, RoleBinding, ResourceQuota, LimitRange."""
ROLE = "trainmaster-tenant"
TOKEN_LABEL = "trainmaster.dev/tenant-token"
SYSTEM_NAMESPACE = "kubeflow-system"
REGISTER = "trainmaster-tenants"
"""ConfigMap in `SYSTEM_NAMESPACE`: tenant -> Unix user. An entry outlives its tenant, so that nobody is ever given the
user id, and with it the files, of somebody else."""
FIRST_USER = 611_000
"""Beyond what distributions and directories give to people; below the ranges of user namespaces."""
LAST_USER = 699_999

PIDS = "trainmaster.dev/pids"
"""Quota: processes and threads of a namespace's Pods; the node's control groups hold it."""
OBJECT_BYTES = "trainmaster.dev/object-bytes"
"""Quota: bytes of all objects of a namespace as they are stored."""
STORAGE = "trainmaster.dev/storage"
"""Quota: bytes on disk of everything that belongs to a namespace; the node measures and holds it."""
JOBS_KEY = "count/trainjobs.trainer.kubeflow.org"
GPU_KEY = "requests.nvidia.com/gpu"
EVENTS_KEY = "count/events"
OBJECT_KEYS = (
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "services",
    "count/pods",
    "count/trainingruntimes.trainer.kubeflow.org",
    "count/jobsets.jobset.x-k8s.io",
    "count/jobs.batch",
)
"""Quota: what is counted by kind."""

ROLE_BINDINGS = GVR("rbac.authorization.k8s.io", "v1", "rolebindings")
RESOURCE_QUOTAS = GVR("", "v1", "resourcequotas")
RBAC_GROUP = "rbac.authorization.k8s.io"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_NAME = 40
"""Names of jobs, ConfigMaps and Pods are built from it."""
_RESERVED = ("default", "kubeflow", "kubernetes", "trainmaster")
_RESERVED_PREFIXES = ("kube-", "kubeflow-", "trainmaster-")
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")


def find_name_problem(name: str) -> str:
    """Why it cannot be a tenant's name; "" when it can."""
    if not _LABEL.fullmatch(name) or len(name) > LONGEST_NAME:
        return (
            f"{name!r} is no name for a tenant: it becomes a namespace, so use lower-case letters, digits and dashes, "
            f"at most {LONGEST_NAME}, with a letter or digit at both ends"
        )
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        return f"{name!r} is reserved for the system; choose another name"
    return ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a tenant may have at a time. Amounts are Kubernetes quantities; "" is no limit."""

    jobs: int = 100
    """TrainJobs that exist, running or finished."""
    cpu: str = ""
    memory: str = ""
    gpus: int | None = None
    pods: int = 200
    """Pods that have not finished."""
    pids: int = 4096
    """Processes and threads of all its Pods together. A rank of PyTorch has 30 to 100."""
    objects: int = 1000
    """Objects of each kind, those that controllers make for it included; events twice as many."""
    object_bytes: str = "64Mi"
    """All its objects together, as the server stores them."""
    storage: str = ""
    """On disk: claims, outputs, work directories, scratch, logs and history together."""

    def to_hard(self) -> dict[str, str]:
        hard = {JOBS_KEY: str(self.jobs), "pods": str(self.pods)}
        for resource in ("cpu", "memory"):
            amount: str = getattr(self, resource)
            if amount:
                hard |= {f"requests.{resource}": amount, f"limits.{resource}": amount}
        if self.gpus is not None:
            hard[GPU_KEY] = str(self.gpus)
        hard |= {name: str(self.objects) for name in OBJECT_KEYS}
        hard |= {EVENTS_KEY: str(2 * self.objects), PIDS: str(self.pids), OBJECT_BYTES: self.object_bytes}
        if self.storage:
            hard |= {STORAGE: self.storage, "requests.storage": self.storage, "limits.ephemeral-storage": self.storage}
        return hard


@dataclass(frozen=True, slots=True)
class Tenant:
    """One as `tenancy` lists it."""

    name: str
    namespace: str
    created: str
    disabled: str = ""
    """Since when; "" while it is active."""
    unix_user: int | None = None
    tokens: Sequence[str] = field(default=())
    """When each of its tokens expires."""

    @property
    def state(self) -> str:
        return "Disabled" if self.disabled else "Active"


def read_tenant(namespace: Object, secrets: Sequence[Object] = ()) -> Tenant:
    meta = namespace["metadata"]
    notes: Mapping[str, Any] = meta.get("annotations") or {}
    return Tenant(
        str((meta.get("labels") or {}).get(TENANT, "")),
        meta["name"],
        str(meta.get("creationTimestamp", "")),
        str(notes.get(DISABLED, "")),
        find_unix_user(namespace),
        tuple(sorted((secret["metadata"].get("annotations") or {}).get(EXPIRES, "") for secret in secrets)),
    )


def is_tenant(namespace: Object) -> bool:
    """Whether somebody has it who is not trusted: `tenancy` made it, or its Pods are bound to a Unix user."""
    meta = namespace["metadata"]
    return TENANT in (meta.get("labels") or {}) or UNIX_USER in (meta.get("annotations") or {})


def find_unix_user(namespace: Object) -> int | None:
    """The user that Pods of this namespace run as; None where they may run as anybody."""
    text = (namespace["metadata"].get("annotations") or {}).get(UNIX_USER)
    return None if text is None else int(text)


def build_namespace(name: str, unix_user: int | None) -> Object:
    metadata: Object = {"name": name, "labels": {TENANT: name}}
    if unix_user is not None:
        metadata["annotations"] = {UNIX_USER: str(unix_user)}
    else:
        # Containers are a wall only without the node's files and processes; a cluster enforces this itself.
        metadata["labels"][POD_SECURITY] = "baseline"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def build_service_account() -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}


def build_role_binding(namespace: str) -> Object:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def build_quota(allowance: Allowance) -> Object:
    spec = {"hard": allowance.to_hard()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": NAME}, "spec": spec}


def build_limit_range(allowance: Allowance) -> Object | None:
    """A quota of CPUs or memory refuses Pods that name none; this names them: at most 1 CPU and 1Gi, or all that the
    tenant has where that is less."""
    amounts = {}
    for name, usual, amount in (("cpu", "1", allowance.cpu), ("memory", "1Gi", allowance.memory)):
        if amount:
            amounts[name] = amount if quantity.parse(amount) < quantity.parse(usual) else usual
    if not amounts:
        return None
    spec = {"limits": [{"type": "Container", "default": amounts, "defaultRequest": dict(amounts)}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": NAME}, "spec": spec}


_FLAGS = {
    JOBS_KEY: "jobs",
    "pods": "pods",
    "requests.cpu": "cpu",
    "limits.cpu": "cpu",
    "requests.memory": "memory",
    "limits.memory": "memory",
    GPU_KEY: "gpu",
    PIDS: "pids",
    OBJECT_BYTES: "object-bytes",
    STORAGE: "storage",
    "requests.storage": "storage",
    "limits.ephemeral-storage": "storage",
    EVENTS_KEY: "objects",
    **dict.fromkeys(OBJECT_KEYS, "objects"),
}
"""By resource of the quota: the flag of `tenant set` that changes it."""


def build_raise_advice(tenant: str, needed: Mapping[str, str]) -> str:
    """`needed`: by resource of the quota, what it would have to be."""
    flags = {_FLAGS[name]: amount for name, amount in needed.items() if name in _FLAGS}
    if not flags:
        return f"an administrator can change the ResourceQuota {NAME} of namespace {tenant}"
    text = " ".join(f"--{flag} {amount}" for flag, amount in sorted(flags.items()))
    return f"an administrator can raise it: `trainmaster tenant set {tenant} {text}`"


def build_token_secret(name: str, expires: str) -> Object:
    """Nothing is in it: the token that is bound to it lives as long as it does, and is stored nowhere."""
    metadata = {"name": name, "labels": {TOKEN_LABEL: "true"}, "annotations": {EXPIRES: expires}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}


def build_role_rules() -> list[Object]:
    """What a tenant may do in its own namespace.

    Neither `serviceaccounts/token` (a token that outlives a rotation) nor roles, quotas and limits; Pods are made and
    deleted, never changed, because the node and the scheduler write down there what they gave.
    """
    return [
        _rule("trainer.kubeflow.org", ("trainjobs", "trainingruntimes"), (*_READ, *_WRITE)),
        _rule("jobset.x-k8s.io", ("jobsets",), _READ),
        _rule("batch", ("jobs",), _READ),
        _rule("", ("configmaps", "secrets", "persistentvolumeclaims"), (*_READ, *_WRITE)),
        _rule("", ("pods",), (*_READ, "create", "delete", "deletecollection")),
        _rule("", ("pods/log", "pods/status"), ("get",)),
        _rule("", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
        _rule("", ("services", "events", "resourcequotas", "limitranges", "serviceaccounts"), _READ),
        _rule("events.k8s.io", ("events",), _READ),
        _rule("metrics.k8s.io", ("pods",), _READ),
    ]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
