"""What a TrainJob that waits in a queue of Kueue may not contain.

Kueue reads and writes TrainJobs with the types of the Trainer release it was built with. It drops the override shapes
of older releases when it starts a job, which would then run without them, and it cannot read a job at all whose
`numProcPerNode` is a word. Both are refused, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from trainmaster.api import fields
from trainmaster.api.admission.rendering import order
from trainmaster.api.fields import FieldError
from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_labels
from trainmaster.api.training import overrides

MANAGER = "trainmaster.dev/overrides"
"""The manager in the patch that a refusal proposes."""
_LONGEST = 8000
"""Characters of a proposed patch; longer ones are not printed."""


def check_queued(trainjob: Fields, old: Fields | None) -> Iterator[FieldError]:
    """`old`: the job before an update. Errors of a job that had a queue before are not reported again."""
    if not read_labels(trainjob).get(QUEUE_NAME) or (old is not None and read_labels(old).get(QUEUE_NAME)):
        return
    spec = trainjob.get("spec") or {}
    shapes = [name for name in overrides.OLDER if spec.get(name)]
    if shapes:
        patch = orjson.dumps(order(overrides.build_equivalent(trainjob, MANAGER))).decode()
        instead = "spec.runtimePatches"
        if len(patch) <= _LONGEST:
            instead = f"this item as the first of spec.runtimePatches: {patch}"
        names = " and ".join(f"spec.{name}" for name in shapes)
        text = f"Kueue drops {names} when it starts a job with the label {QUEUE_NAME}; use {instead}"
        yield fields.forbidden(f"spec.{shapes[0]}", text)
    processes = (spec.get("trainer") or {}).get("numProcPerNode")
    if isinstance(processes, str):
        text = (
            f"must be a number in a job with the label {QUEUE_NAME}, because Kueue cannot read a word there; leave it "
            "out, and set it in the runtime (spec.mlPolicy.torch.numProcPerNode)"
        )
        yield fields.invalid("spec.trainer.numProcPerNode", processes, text)
