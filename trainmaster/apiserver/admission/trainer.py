"""Admission of TrainJobs, runtimes and v1 jobs, like upstream's webhooks, whose names are in the messages.

The rules are pure functions in `api.admission`; this plugin gives them access to the store.
"""

from __future__ import annotations

from trainmaster.api.admission import writes
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.spelling import respell
from trainmaster.api.status import StatusError
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.state import RegistryState


class StateLookup:
    """The `Lookup` of admission rules in the store."""

    def __init__(self, state: RegistryState) -> None:
        self.find = state.find_shared


class TrainerAdmission(Plugin):
    def __init__(self, state: RegistryState, *, embedded: bool = True) -> None:
        self.embedded = embedded
        """Whether this server's own node runs the jobs; jobs that it cannot run are then refused immediately."""
        self._state = state
        self._lookup = StateLookup(state)

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return writes.has_rules(kind) and operation is not DELETE

    def mutate(self, attributes: Attributes) -> None:
        old, now = _respell_old(attributes), self._state.now()
        warnings = writes.complete(attributes.kind, attributes.new, old, now, embedded=self.embedded)
        attributes.call.warnings.extend(warnings)

    def validate(self, attributes: Attributes) -> None:
        kind, old = attributes.kind, _respell_old(attributes)
        findings = writes.examine(kind, attributes.new, old, self._lookup, embedded=self.embedded)
        attributes.call.warnings.extend(findings.warnings)
        if findings.text:
            message = f'admission webhook "{writes.get_webhook(kind)}" denied the request: {findings.text}'
            raise StatusError(403, "Forbidden", message)


def _respell_old(attributes: Attributes) -> Object | None:
    return attributes.old and respell(attributes.kind, attributes.old, attributes.new)
