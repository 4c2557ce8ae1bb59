"""Validates the installation's policy, the ConfigMap `trainmaster-policy`.

The keys are those of `api.lifecycle.policy`. Unknown keys are refused too: a misspelt key would have no effect, which
might be noticed only weeks later.
"""

from __future__ import annotations

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.lifecycle.policy import KEYS, NAME, NAMESPACE, read_policy
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin


class PolicyAdmission(Plugin):
    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.gvr == CONFIG_MAPS and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        if (attributes.namespace, attributes.name) != (NAMESPACE, NAME):
            return
        errors = list(read_policy(attributes.new).errors)
        errors += [
            fields.not_supported(f"data.{key}", key, KEYS)
            for key in read_fields(attributes.new, "data")
            if key not in KEYS
        ]
        if errors:
            raise status.invalid(attributes.kind.group, attributes.kind.kind, NAME, errors)
