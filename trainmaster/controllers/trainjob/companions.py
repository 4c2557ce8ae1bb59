"""The objects beside the JobSet, compared with what is there: made when missing, set right when changed.

One that holds a secret is made once and never looked at again. One that belongs to somebody else is left alone, and
the job waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api.meta import Object
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Patch, Write
from trainmaster.controllers.frameworks.contract import Companion
from trainmaster.controllers.ownership import build_owner_reference, is_owned_by, is_terminating
from trainmaster.controllers.waiting import Waiting


def plan_companions(view: View, trainjob: Object, companions: Iterable[Companion]) -> Sequence[Write] | Waiting:
    writes: list[Write] = []
    meta = trainjob["metadata"]
    for companion in companions:
        found = view.find(companion.gvr, meta["namespace"], companion.name)
        if found is None:
            writes.append(Create(companion.gvr, _build(trainjob, companion)))
        elif not is_owned_by(found, meta["uid"]):
            text = f'a {companion.kind} "{companion.name}" exists that does not belong to this TrainJob'
            return Waiting("NameConflict", f"{text}; delete or rename one of the two")
        elif not companion.once and not is_terminating(found):
            writes.extend(_correct(found, companion))
    return writes


def _build(trainjob: Object, companion: Companion) -> Object:
    return {
        "apiVersion": companion.gvr.api_version,
        "kind": companion.kind,
        "metadata": {
            "name": companion.name,
            "namespace": trainjob["metadata"]["namespace"],
            "ownerReferences": [build_owner_reference(trainjob)],
        },
        **companion.make(),
    }


def _correct(found: Object, companion: Companion) -> Sequence[Write]:
    changed = {name: value for name, value in companion.make().items() if found.get(name) != value}
    if not changed:
        return ()
    meta = found["metadata"]
    patch = {"metadata": {"uid": meta["uid"]}, **changed}
    return (Patch(companion.gvr, meta["namespace"], meta["name"], patch),)
