"""Creates the objects besides the JobSet if they are missing, and updates them if they were changed.

An object with a secret is created once and never checked again. An object with another owner is left alone, and the job
waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api.meta import Object
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Write
from trainmaster.controllers.frameworks.contract import Companion
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.trainjobs import TrainJob


def plan_companions(view: View, trainjob: TrainJob, companions: Iterable[Companion]) -> Sequence[Write] | Waiting:
    writes: list[Write] = []
    for companion in companions:
        raw = view.find(companion.gvr, trainjob.namespace, companion.name)
        if raw is None:
            writes.append(Create(companion.gvr, build_companion(trainjob, companion)))
            continue
        found = ObjectModel(raw)
        if not found.is_owned_by(trainjob.uid):
            text = f'a {companion.kind} "{companion.name}" exists that does not belong to this TrainJob'
            return Waiting("NameConflict", f"{text}; delete or rename one of the two")
        if not companion.once and not found.is_deleting:
            changed = {name: value for name, value in companion.make().items() if found.raw.get(name) != value}
            if changed:
                writes.append(build_patch(companion.gvr, found, changed))
    return writes


def build_companion(trainjob: TrainJob, companion: Companion) -> Object:
    return {
        "apiVersion": companion.gvr.api_version,
        "kind": companion.kind,
        "metadata": {
            "name": companion.name,
            "namespace": trainjob.namespace,
            "ownerReferences": [build_owner_reference(trainjob.raw)],
        },
        **companion.make(),
    }
