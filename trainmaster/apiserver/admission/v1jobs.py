"""Admission of the jobs of `kubeflow.org/v1`, like upstream's webhooks, whose names are in the messages. The rules are
in `api.v1jobs.validation`; upstream has no webhook for some kinds and examines them too late, in its controller.

What only concerns us is examined when it is written: annotations of ours, and a TTL that is longer than an enforced
one. A job that was accepted earlier can still be changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api.admission.trainjobs import read_installation_policy
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import check_annotations, check_enforced, find_ttl
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_annotations
from trainmaster.api.status import StatusError
from trainmaster.api.v1jobs.frameworks import BY_KIND, GROUP
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.admission.trainer import StateLookup
from trainmaster.apiserver.state import RegistryState


class V1JobAdmission(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._lookup = StateLookup(state)

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.group == GROUP and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        from trainmaster.api.v1jobs.validation import admit  # noqa: PLC0415 - few servers have such jobs

        framework = BY_KIND[attributes.kind.kind]
        findings = admit(framework, attributes.new, attributes.old)
        findings.errors += self._check_terms(attributes.new, attributes.old)
        attributes.call.warnings.extend(findings.warnings)
        if findings.text:
            webhook = f"validator.{framework.singular}.training-operator.kubeflow.org"
            raise StatusError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {findings.text}')

    def _check_terms(self, new: Fields, old: Fields | None) -> Iterator[FieldError]:
        if old is None or read_annotations(old) != read_annotations(new):
            yield from check_annotations(new)
        if old is None or find_ttl(old, None, RetentionPolicy()) != find_ttl(new, None, RetentionPolicy()):
            yield from check_enforced(new, None, read_installation_policy(self._lookup))
