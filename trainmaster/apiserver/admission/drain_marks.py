"""Keeps the marks of a drain (`api.labels.DRAIN_MARKS`) for the control plane: others cannot set or change them.

With them a job would be resumed against somebody's will, or come before others in the queue. Removing one is allowed:
`trainmaster suspend` does so, and the job stays suspended.
"""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import DRAIN_MARKS
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import JOB_SETS, JOBS
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.jobs.kinds import TRAINING_KINDS


class DrainMarks(Plugin):
    def __init__(self, controllers: str) -> None:
        """`controllers`: the name of the user as whom the controllers write."""
        self._controllers = controllers

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return (kind.kind in TRAINING_KINDS or kind.gvr in (JOB_SETS, JOBS)) and operation is not DELETE

    def mutate(self, attributes: Attributes) -> None:
        given = read_annotations(attributes.new)
        if DRAIN_MARKS.isdisjoint(given) or attributes.call.identity.user == self._controllers:
            return
        stored = read_annotations(attributes.old or {})
        kept = {key: value for key, value in given.items() if key not in DRAIN_MARKS}
        kept |= {key: stored[key] for key in DRAIN_MARKS if key in given and key in stored}
        attributes.new["metadata"]["annotations"] = kept
