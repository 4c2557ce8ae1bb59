"""What every installation starts with besides its namespaces: roles, bindings, priority classes, the storage class.

Written when they are missing; what exists is an administrator's to change and stays as it is.
"""

from __future__ import annotations

from trainmaster.api import catalogue
from trainmaster.api.kindsets.scheduling_v1 import PRIORITY_CLASS, build_system_classes
from trainmaster.api.kindsets.storage_v1 import STORAGE_CLASS
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound
from trainmaster.api.storage import build_storage_class
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.local import SYSTEM
from trainmaster.apiserver.registry import Registry
from trainmaster.auth.contract import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from trainmaster.auth.roles import build_cluster_role_bindings, build_cluster_roles
from trainmaster.client.contract import WriteOptions


def ensure_built_ins(registry: Registry) -> int:
    """Creates the built-in objects that do not exist; returns how many were made."""
    made = 0
    with registry.store.transaction():
        for gvr, objects in (
            (CLUSTER_ROLES, build_cluster_roles()),
            (CLUSTER_ROLE_BINDINGS, build_cluster_role_bindings()),
            (PRIORITY_CLASS.gvr, build_system_classes()),
            (STORAGE_CLASS.gvr, [build_storage_class()]),
        ):
            for obj in objects:
                made += _ensure(registry, gvr, obj)
    return made


def _ensure(registry: Registry, gvr: GVR, obj: Object) -> bool:
    kind = catalogue.build().find(gvr)
    assert kind is not None
    try:
        registry.get(kind, "", obj["metadata"]["name"])
    except NotFound:
        registry.create(Call(SYSTEM), kind, "", obj, WriteOptions(field_manager="trainmaster"))
        return True
    return False
