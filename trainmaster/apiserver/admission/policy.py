"""Validates the installation's policy, the ConfigMap `trainmaster-policy` (`api.lifecycle.policy`)."""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.lifecycle.policy import NAME, NAMESPACE, check_policy
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin


class PolicyAdmission(Plugin):
    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.gvr == CONFIG_MAPS and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        if (attributes.namespace, attributes.name) != (NAMESPACE, NAME):
            return
        errors = check_policy(attributes.new)
        if errors:
            raise status.invalid(attributes.kind.group, attributes.kind.kind, NAME, errors)
