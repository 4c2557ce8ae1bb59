"""Admission of TrainJobs and runtimes, like upstream's webhooks, whose names are in the messages.

The rules are pure functions in `api.admission`; this plugin gives them access to the store.
"""

from __future__ import annotations

from trainmaster.api.admission import runtimes, trainjobs
from trainmaster.api.admission.contract import Findings
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.spelling import respell
from trainmaster.api.status import StatusError
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.state import RegistryState

_WEBHOOKS = {
    TRAIN_JOBS: "validator.trainjob.trainer.kubeflow.org",
    TRAINING_RUNTIMES: "validator.trainingruntime.trainer.kubeflow.org",
    CLUSTER_TRAINING_RUNTIMES: "validator.clustertrainingruntime.trainer.kubeflow.org",
}


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
        return kind.gvr in _WEBHOOKS and operation is not DELETE

    def mutate(self, attributes: Attributes) -> None:
        if attributes.kind.gvr == TRAIN_JOBS:
            trainjobs.stamp_times(attributes.new, _respell_old(attributes), self._state.now())

    def validate(self, attributes: Attributes) -> None:
        findings = self._examine(attributes.kind.gvr, attributes.new, _respell_old(attributes))
        attributes.call.warnings.extend(findings.warnings)
        if findings.text:
            message = f'admission webhook "{_WEBHOOKS[attributes.kind.gvr]}" denied the request: {findings.text}'
            raise StatusError(403, "Forbidden", message)

    def _examine(self, gvr: GVR, new: Object, old: Object | None) -> Findings:
        if gvr != TRAIN_JOBS:
            return runtimes.admit_runtime(new, old)
        if old is None:
            return trainjobs.admit_create(new, self._lookup, embedded=self.embedded)
        return trainjobs.admit_update(new, old, self._lookup)


def _respell_old(attributes: Attributes) -> Object | None:
    return attributes.old and respell(attributes.kind, attributes.old, attributes.new)
