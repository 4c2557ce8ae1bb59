"""Admission of the jobs of `kubeflow.org/v1`, like upstream's webhooks, whose names are in the messages. The rules are
in `api.v1jobs.validation`; upstream has no webhook for some kinds and examines them too late, in its controller."""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.status import StatusError
from trainmaster.api.v1jobs.frameworks import BY_KIND, GROUP
from trainmaster.api.v1jobs.validation import admit
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin


class V1JobAdmission(Plugin):
    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.group == GROUP and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        framework = BY_KIND[attributes.kind.kind]
        findings = admit(framework, attributes.new, attributes.old)
        attributes.call.warnings.extend(findings.warnings)
        if findings.text:
            webhook = f"validator.{framework.singular}.training-operator.kubeflow.org"
            raise StatusError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {findings.text}')
