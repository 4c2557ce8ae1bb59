"""What a tenant is made of, as objects: a namespace, a ServiceAccount with a role in it, a quota. Pure.

The same on one machine and on a cluster. On one machine the namespace also names a Unix user;
`apiserver.admission.tenants` lets Pods there run as nobody else. Read by `tenancy` (which writes these objects),
by admission and by the REST API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.resources import ROLE_BINDINGS
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS, GROUP

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
TENANT_RECORD = "trainmaster-tenant-"
"""ConfigMap in `SYSTEM_NAMESPACE` for each name that was ever given; outlives its tenant."""
USER_RECORD = "trainmaster-unix-user-"
"""ConfigMap in `SYSTEM_NAMESPACE` for each Unix user that was ever given: nobody is given the user id, and with it the
files, of somebody else."""
REGISTER = "trainmaster-tenants"
"""ConfigMap in `SYSTEM_NAMESPACE`: tenant -> Unix user, as earlier versions kept all of them in one."""
CARRIED_OVER = "trainmaster.dev/carried-over"
"""Annotation on `REGISTER`: every entry has its own objects."""
RECORD_LABEL = "trainmaster.dev/tenant-record"
SIGNED_UP = "trainmaster.dev/signed-up"
"""Label on the record of a tenant that nobody added."""
INVITATION = "trainmaster.dev/invitation"
INVITATION_NAME = "trainmaster-invitation-"
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
V1_JOB_KEYS = tuple(f"count/{framework.plural}.{GROUP}" for framework in FRAMEWORKS)
"""Quota: jobs of each kind of `kubeflow.org/v1`. A quota has no resource for several kinds together."""
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
HARD_KEYS: Mapping[str, Sequence[str]] = {
    "jobs": (JOBS_KEY, *V1_JOB_KEYS),
    "cpu": ("requests.cpu", "limits.cpu"),
    "memory": ("requests.memory", "limits.memory"),
    "gpus": (GPU_KEY,),
    "pods": ("pods",),
    "pids": (PIDS,),
    "objects": (*OBJECT_KEYS, EVENTS_KEY),
    "object_bytes": (OBJECT_BYTES,),
    "storage": (STORAGE, "requests.storage", "limits.ephemeral-storage"),
}
"""By field of an `Allowance`: the resources of the quota that hold it."""
COMPLETED = "trainmaster.dev/allowance"
"""Annotation on the quota: `ALL_KEYS` if it was made by, or completed for, a version that knows all of these resources.
Before v1 jobs were counted it was 1."""
ALL_KEYS = "2"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_NAME = 40
"""Names of jobs, ConfigMaps and Pods are built from it."""
_RESERVED = ("default", "kubeflow", "kubernetes", "trainmaster")
_RESERVED_PREFIXES = ("kube-", "kubeflow-", "trainmaster-")


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
    """TrainJobs that exist, running or finished; also jobs of each v1 kind."""
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
        given = {name: getattr(self, name) for name in HARD_KEYS}
        changes = build_hard_changes({name: value for name, value in given.items() if value not in (None, "")})
        return {name: amount for name, amount in changes.items() if amount is not None}


ALLOWED = ("jobs", "cpu", "memory", "gpus", "pods", "pids", "objects", "object_bytes", "storage")
"""The fields of an `Allowance`, in the order in which people are shown them."""


def build_hard_changes(changes: Mapping[str, str | int | None]) -> dict[str, str | None]:
    """By resource of the quota: what the fields of an allowance make of it. None lifts a limit."""
    found: dict[str, str | None] = {}
    for name, value in changes.items():
        for key in HARD_KEYS[name]:
            found[key] = None if value is None else str(value)
        if name == "objects" and isinstance(value, int):
            found[EVENTS_KEY] = str(2 * value)
    return found


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit of a tenant and how much of it is used, for people."""

    name: str
    """As a field of `Allowance`; for objects and v1 jobs with their kind: `objects of kind secrets`."""
    resource: str
    """As the quota names it."""
    used: str
    allowed: str


def list_budgets(quota: Object) -> list[Budget]:
    """Every limit that the quota sets, in the order of `ALLOWED`; what two resources mean the same is shown once."""
    hard: Mapping[str, Any] = quota["spec"].get("hard") or {}
    used: Mapping[str, Any] = (quota.get("status") or {}).get("used") or {}
    found = []
    for field_name in ALLOWED:
        keys = [key for key in HARD_KEYS[field_name] if key in hard]
        if field_name in ("cpu", "memory"):
            # Both are held; what Pods may use is what counts, and never less than what they ask for.
            keys = keys[-1:]
        if field_name == "storage":
            keys = keys[:1]
        for key in keys:
            is_kind = field_name == "objects" or key in V1_JOB_KEYS
            shown = f"{field_name} of kind {key.removeprefix('count/')}" if is_kind else field_name
            found.append(Budget(shown, key, str(used.get(key, "0")), str(hard[key])))
    known = {key for keys in HARD_KEYS.values() for key in keys}
    found += [Budget(key, key, str(used.get(key, "0")), str(hard[key])) for key in sorted(set(hard) - known)]
    return found


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
    budgets: Sequence[Budget] = field(default=())

    @property
    def state(self) -> str:
        return "Disabled" if self.disabled else "Active"


def read_tenant(namespace: Object, secrets: Sequence[Object] = (), quota: Object | None = None) -> Tenant:
    meta = namespace["metadata"]
    notes: Mapping[str, Any] = meta.get("annotations") or {}
    return Tenant(
        str((meta.get("labels") or {}).get(TENANT, "")),
        meta["name"],
        str(meta.get("creationTimestamp", "")),
        str(notes.get(DISABLED, "")),
        find_unix_user(namespace),
        tuple(sorted((secret["metadata"].get("annotations") or {}).get(EXPIRES, "") for secret in secrets)),
        () if quota is None else tuple(list_budgets(quota)),
    )


def is_tenant(namespace: Object) -> bool:
    """Whether the namespace belongs to a tenant, with or without a Unix user of its own; else it is the owner's."""
    return TENANT in (namespace["metadata"].get("labels") or {}) or find_unix_user(namespace) is not None


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


def build_record(name: str, user: int | None, signed_up: bool) -> Object:
    labels = {RECORD_LABEL: "true", **({SIGNED_UP: "true"} if signed_up else {})}
    data = {"tenant": name, **({"unix-user": str(user)} if user is not None else {})}
    metadata = {"name": TENANT_RECORD + name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def build_user_record(user: int, name: str) -> Object:
    metadata = {"name": f"{USER_RECORD}{user}", "labels": {RECORD_LABEL: "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tenant": name}}


def find_recorded_user(record: Object) -> int | None:
    text = (record.get("data") or {}).get("unix-user")
    return None if text is None else int(text)


def build_service_account() -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}


def build_role_binding(namespace: str) -> Object:
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def build_quota(allowance: Allowance) -> Object:
    metadata = {"name": NAME, "annotations": {COMPLETED: ALL_KEYS}}
    spec = {"hard": allowance.to_hard()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def build_limit_range(hard: Mapping[str, str]) -> Object | None:
    """A quota of CPUs or memory refuses Pods that name none; this names them: at most 1 CPU and 1Gi, or all that the
    tenant has where that is less."""
    amounts = {}
    for name, usual in (("cpu", "1"), ("memory", "1Gi")):
        amount = hard.get(f"limits.{name}")
        if amount:
            amounts[name] = amount if quantity.parse(amount) < quantity.parse(usual) else usual
    if not amounts:
        return None
    spec = {"limits": [{"type": "Container", "default": amounts, "defaultRequest": dict(amounts)}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": NAME}, "spec": spec}


_FLAGS = {key: {"gpus": "gpu"}.get(name, name.replace("_", "-")) for name, keys in HARD_KEYS.items() for key in keys}
"""By resource of the quota: the flag of `tenant set` that changes it."""


NEVER = "so it could never start"
"""In refusals of jobs that exceed a limit by themselves; others may only have to wait."""
_WORDS = {"cpu": "CPU", "gpu": "GPU"}


def describe_amounts(amounts: Mapping[str, str]) -> str:
    """`amounts`: by resource of the quota. For people: `8 CPUs and 16Gi of memory`; what means the same stands once."""
    by_flag = {_FLAGS.get(name, name): amount for name, amount in amounts.items()}
    texts = []
    for flag, amount in sorted(by_flag.items()):
        word = _WORDS.get(flag)
        texts.append(f"{amount} of {flag}" if word is None else f"{amount} {word}{'' if amount == '1' else 's'}")
    return ", ".join([*texts[:-2], " and ".join(texts[-2:])])


def build_raise_advice(tenant: str, needed: Mapping[str, str]) -> str:
    """`needed`: by resource of the quota, what it would have to be."""
    flags = {_FLAGS[name]: amount for name, amount in needed.items() if name in _FLAGS}
    if not flags:
        return f"an administrator can change the ResourceQuota {NAME} of namespace {tenant}"
    text = " ".join(f"--{flag} {amount}" for flag, amount in sorted(flags.items()))
    return f"an administrator can raise it: `trainmaster tenant set {tenant} {text}`"


def find_storage_problem(quota: Object) -> str:
    """Why nothing new may be written under this quota; "" when it may."""
    hard = (quota["spec"].get("hard") or {}).get(STORAGE)
    used = ((quota.get("status") or {}).get("used") or {}).get(STORAGE)
    if hard is None or used is None or quantity.parse(used) <= quantity.parse(hard):
        return ""
    meta = quota["metadata"]
    return (
        f"exceeded quota: {meta['name']}, used: {STORAGE}={used}, limited: {STORAGE}={hard}: delete jobs, outputs or "
        f"claims first; {build_raise_advice(meta['namespace'], {STORAGE: used})}"
    )


def build_token_secret(name: str, expires: str) -> Object:
    """Nothing is in it: the token that is bound to it lives as long as it does, and is stored nowhere."""
    metadata = {"name": name, "labels": {TOKEN_LABEL: "true"}, "annotations": {EXPIRES: expires}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
