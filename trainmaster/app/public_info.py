"""What SDKs ask a control plane about itself: the ConfigMap `kubeflow-trainer-public`.

Every authenticated user may read it. Names as upstream's installation has them. Written by `bootstrap` at every start.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.api.resources import RBAC_GROUP
from trainmaster.auth.contract import AUTHENTICATED

NAMESPACE = "kubeflow-system"
NAME = "kubeflow-trainer-public"
VERSION_KEY = "kubeflow_trainer_version"
SERVED_VERSION = "v2.3.0"
"""The release of Kubeflow Trainer whose API is served here, not our own: clients know upstream's releases."""

_RBAC_VERSION = f"{RBAC_GROUP}/v1"
_METADATA = {"name": NAME, "namespace": NAMESPACE}


def build_public_info() -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**_METADATA}, "data": {VERSION_KEY: SERVED_VERSION}}


def build_public_role() -> Object:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get", "list", "watch"]}
    return {"apiVersion": _RBAC_VERSION, "kind": "Role", "metadata": {**_METADATA}, "rules": [rule]}


def build_public_role_binding() -> Object:
    return {
        "apiVersion": _RBAC_VERSION,
        "kind": "RoleBinding",
        "metadata": {**_METADATA},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": NAME},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": AUTHENTICATED}],
    }
