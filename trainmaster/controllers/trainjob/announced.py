"""Secrets that the controller may create but not read, as on a cluster: nobody there should have to let it see Secrets.

    snapshot with the annotation -> Secret -> ... -> JobSet

The snapshot of the runtime announces the Secret before it is created. If one of that name exists later, it is from an
earlier attempt that was interrupted. If one exists right when it is announced, it belongs to somebody else: the
announcement is taken back, and the job waits. After a crash between these two writes the job would use that Secret; so
could any job of the namespace that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.training import snapshots
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Write, WriteRefusal
from trainmaster.controllers.frameworks.contract import Companion
from trainmaster.controllers.trainjob.companions import build_companion
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.trainjobs import TrainJob

ANNOTATION = "trainmaster.dev/announced-secrets"
"""Of the snapshot: the names of Secrets, separated by commas."""


def plan_secrets(
    view: View, trainjob: TrainJob, snapshot: Create | None, secrets: Sequence[Companion]
) -> Sequence[Write]:
    """The snapshot, if it does not exist, and the Secrets."""
    if not secrets:
        return () if snapshot is None else (snapshot,)
    names = ",".join(secret.name for secret in secrets)
    if snapshot is not None:
        return (_announce(snapshot, names), *_create(trainjob, secrets))
    found = view.find(CONFIG_MAPS, trainjob.namespace, snapshots.get_name(trainjob.raw))
    assert found is not None, "the runtime was read from it"
    if read_annotations(found).get(ANNOTATION) == names:
        return create_again(trainjob, secrets)
    change = {"metadata": {"annotations": {ANNOTATION: names}}}
    return (build_patch(CONFIG_MAPS, ObjectModel(found), change, versioned=True), *_create(trainjob, secrets))


def create_again(trainjob: TrainJob, secrets: Iterable[Companion]) -> Sequence[Write]:
    """For Secrets that were created before; somebody may have deleted them."""
    return [Create(one.gvr, build_companion(trainjob, one), existing="accept") for one in secrets]


def _create(trainjob: TrainJob, secrets: Iterable[Companion]) -> Iterable[Write]:
    return (Create(one.gvr, build_companion(trainjob, one), existing="report") for one in secrets)


def _announce(snapshot: Create, names: str) -> Create:
    meta = {**snapshot.obj["metadata"], "annotations": {ANNOTATION: names}}
    announced: Object = {**snapshot.obj, "metadata": meta}
    return Create(snapshot.gvr, announced)


def explain_taken(view: View, trainjob: TrainJob, refusal: WriteRefusal) -> tuple[Waiting, Write | None] | None:
    """Why the job waits, and the write that takes the announcement back; None for a refusal of another kind."""
    write = refusal.write
    if not isinstance(write, Create) or not refusal.is_taken:
        return None
    snapshot = view.find(CONFIG_MAPS, trainjob.namespace, snapshots.get_name(trainjob.raw))
    change = {"metadata": {"annotations": {ANNOTATION: None}}}
    retraction = None if snapshot is None else build_patch(CONFIG_MAPS, ObjectModel(snapshot), change)
    kind, name = write.obj["kind"], write.obj["metadata"]["name"]
    text = f'a {kind} "{name}" exists that does not belong to this TrainJob; delete or rename one of the two'
    return Waiting("NameConflict", text), retraction
