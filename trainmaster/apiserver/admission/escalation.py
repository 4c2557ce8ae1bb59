"""Prevents users from granting permissions that they do not have."""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.resources import RBAC_GROUP
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.auth.escalation import check_write
from trainmaster.auth.rbac import RbacAuthorizer


class NoEscalation(Plugin):
    """Refuses roles and bindings with more permissions than their writer has."""

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.group == RBAC_GROUP and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        identity, gvr = attributes.call.identity, attributes.kind.gvr
        check_write(self._authorizer, identity, gvr, attributes.namespace, attributes.new, attributes.old)
