"""The core group: one module per kind."""

from __future__ import annotations

from trainmaster.api.kindsets.core_v1.configmaps import CONFIG_MAP
from trainmaster.api.kindsets.core_v1.endpoints import ENDPOINTS
from trainmaster.api.kindsets.core_v1.events import EVENT
from trainmaster.api.kindsets.core_v1.limitranges import LIMIT_RANGE
from trainmaster.api.kindsets.core_v1.namespaces import NAMESPACE
from trainmaster.api.kindsets.core_v1.nodes import NODE
from trainmaster.api.kindsets.core_v1.persistentvolumeclaims import PERSISTENT_VOLUME_CLAIM
from trainmaster.api.kindsets.core_v1.persistentvolumes import PERSISTENT_VOLUME
from trainmaster.api.kindsets.core_v1.pods import POD
from trainmaster.api.kindsets.core_v1.resourcequotas import RESOURCE_QUOTA
from trainmaster.api.kindsets.core_v1.secrets import SECRET
from trainmaster.api.kindsets.core_v1.serviceaccounts import SERVICE_ACCOUNT
from trainmaster.api.kindsets.core_v1.services import SERVICE

KINDS = (
    CONFIG_MAP,
    ENDPOINTS,
    EVENT,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_QUOTA,
    SECRET,
    SERVICE_ACCOUNT,
    SERVICE,
)
