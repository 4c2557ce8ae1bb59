"""Remembers who deleted a TrainJob, for its record in the history."""

from __future__ import annotations

from collections import OrderedDict

from trainmaster.api.declaring.kinds import Kind
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.jobs.kinds import TRAINING_KINDS

_REMEMBERED = 4096


class DeletionWitness(Plugin):
    """Records which user deletes a training job, and with which program. In memory only: lost after a crash."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.kind in TRAINING_KINDS and operation is DELETE

    def validate(self, attributes: Attributes) -> None:
        if attributes.old is None or attributes.dry_run:
            return
        call = attributes.call
        program = call.user_agent.partition(" ")[0]
        self._seen.setdefault(attributes.old["metadata"]["uid"], (call.identity.user, program))
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def find(self, uid: str) -> tuple[str, str] | None:
        return self._seen.pop(uid, None)
