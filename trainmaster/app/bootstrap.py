"""Built-in objects of every installation: roles, bindings, priority classes, the storage class.

Missing objects are created; existing ones are never changed, because an administrator may have edited them. The one
exception is the version in the ConfigMap `kubeflow-trainer-public`, which SDKs read and which depends on the release.
Every authenticated user may read that ConfigMap; its names are those of upstream's installation.
"""

from __future__ import annotations

import orjson

from trainmaster.api.declaring import catalogue
from trainmaster.api.kindsets.scheduling_v1 import PRIORITY_CLASS, build_system_classes
from trainmaster.api.kindsets.storage_v1 import STORAGE_CLASS
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    ROLE_BINDINGS,
    ROLES,
)
from trainmaster.api.status import NotFound
from trainmaster.api.storage import build_storage_class
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.local import SYSTEM
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.app.public_info import (
    INFO_NAME,
    INFO_NAMESPACE,
    VERSION_KEY,
    build_public_info,
    build_public_role,
    build_public_role_binding,
)
from trainmaster.auth.roles import build_cluster_role_bindings, build_cluster_roles
from trainmaster.client.contract import PatchType, WriteOptions

_OURS = WriteOptions(field_manager="trainmaster")


def ensure_built_ins(registry: ObjectRegistry) -> int:
    """Creates the built-in objects that do not exist; returns their number."""
    made = 0
    with registry.store.transaction():
        for gvr, objects in (
            (CLUSTER_ROLES, build_cluster_roles()),
            (CLUSTER_ROLE_BINDINGS, build_cluster_role_bindings()),
            (PRIORITY_CLASS.gvr, build_system_classes()),
            (STORAGE_CLASS.gvr, [build_storage_class()]),
            (ROLES, [build_public_role()]),
            (ROLE_BINDINGS, [build_public_role_binding()]),
            (CONFIG_MAPS, [build_public_info()]),
        ):
            for obj in objects:
                made += _ensure(registry, gvr, obj)
        _correct_version(registry)
    return made


def _ensure(registry: ObjectRegistry, gvr: GVR, obj: Object) -> bool:
    kind = catalogue.build().find(gvr)
    assert kind is not None
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    try:
        registry.get(kind, namespace, metadata["name"])
    except NotFound:
        registry.create(Call(SYSTEM), kind, namespace, obj, _OURS)
        return True
    return False


def _correct_version(registry: ObjectRegistry) -> None:
    """Updates the version in a home that was created by an earlier release."""
    kind = catalogue.build().find(CONFIG_MAPS)
    assert kind is not None
    place = (kind, INFO_NAMESPACE, INFO_NAME)
    want = build_public_info()["data"]
    found = read_fields(orjson.loads(registry.get(*place).value), "data")
    if found.get(VERSION_KEY) != want[VERSION_KEY]:
        registry.patch(Call(SYSTEM), *place, PatchType.MERGE, {"data": want}, _OURS)
