"""The ConfigMap `kubeflow-trainer-public`, from which SDKs read the version of the API. Everyone who is authenticated
may read it. The same on one machine and on a cluster. Pure.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.api.resources import RBAC_GROUP
from trainmaster.auth.contract import AUTHENTICATED

INFO_NAMESPACE, INFO_NAME = "kubeflow-system", "kubeflow-trainer-public"
VERSION_KEY = "kubeflow_trainer_version"
SERVED_VERSION = "v2.3.0"
"""The release of Kubeflow Trainer whose API we serve; clients know upstream's releases, not ours."""
_METADATA = {"name": INFO_NAME, "namespace": INFO_NAMESPACE}
_RBAC_VERSION = f"{RBAC_GROUP}/v1"


def build_public_info() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**_METADATA},
        "data": {VERSION_KEY: SERVED_VERSION},
    }


def build_public_role() -> Object:
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [INFO_NAME],
        "verbs": ["get", "list", "watch"],
    }
    return {"apiVersion": _RBAC_VERSION, "kind": "Role", "metadata": {**_METADATA}, "rules": [rule]}


def build_public_role_binding() -> Object:
    return {
        "apiVersion": _RBAC_VERSION,
        "kind": "RoleBinding",
        "metadata": {**_METADATA},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": INFO_NAME},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": AUTHENTICATED}],
    }
