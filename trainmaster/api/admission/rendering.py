"""Values inside refusals, in the order in which upstream prints them.

Upstream prints Go structs, field by field as they are declared; clients and tests match on whole texts. Keys that no
struct declares (labels, selectors) are sorted, as Go prints maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ORDER = (
    *(
        "manager",
        "time",
        "trainingRuntimeSpec",
        "targetJobs",
        "key",
        "operator",
        "name",
        "value",
        "valueFrom",
        "effect",
    ),
    *("apiGroup", "kind", "image", "command", "args", "workingDir", "ports", "envFrom", "env", "resources"),
    *("readOnly", "mountPath", "metadata", "labels", "annotations", "replicatedJobs", "template", "spec"),
    *("serviceAccountName", "nodeSelector", "affinity", "tolerations", "volumes", "initContainers", "containers"),
    *("volumeMounts", "schedulingGates", "imagePullSecrets", "securityContext", "medium", "sizeLimit"),
)
_RANKS = {name: rank for rank, name in enumerate(_ORDER)}


def order(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: (_RANKS.get(name, len(_RANKS)), name))
        return {name: order(value[name]) for name in names}
    if isinstance(value, list):
        return [order(item) for item in value]
    return value
