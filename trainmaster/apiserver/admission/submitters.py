"""Records on a training job that the owner of the installation created it. The node gives such jobs the owner's caches.

Whatever a client writes into this annotation is replaced: at creation by what authentication found, later by what is
stored. A job that others may change afterwards still belongs to its submitter; tenants' namespaces are excluded by the
node, because their runtimes and programs are not the owner's.
"""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import OWNER, SUBMITTER
from trainmaster.api.reading import read_annotations
from trainmaster.apiserver.admission.chain import CREATE, DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.jobs.kinds import TRAINING_KINDS


class Submitters(Plugin):
    def __init__(self, owner: str) -> None:
        """`owner`: the name of the owner's user."""
        self._owner = owner

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.kind in TRAINING_KINDS and operation is not DELETE

    def mutate(self, attributes: Attributes) -> None:
        if attributes.operation is CREATE:
            wanted = OWNER if attributes.call.identity.user == self._owner else None
        else:
            wanted = read_annotations(attributes.old or {}).get(SUBMITTER)
        given = read_annotations(attributes.new)
        if given.get(SUBMITTER) == wanted:
            return
        kept = {key: value for key, value in given.items() if key != SUBMITTER}
        if wanted is not None:
            kept[SUBMITTER] = wanted
        attributes.new["metadata"]["annotations"] = kept
