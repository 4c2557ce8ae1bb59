"""One pass over a job of `kubeflow.org/v1`. All seven kinds share it; what differs between them is in
`api.v1jobs.frameworks`, `variables`, `mpi` and `outcome`.

The outcome is stored in a pass without other writes; later passes delete Pods as `cleanPodPolicy` says. A failed Pod
that will be replaced is counted and named in the status first, and deleted in a later pass, so that no crash and no
stale view lets a restart count twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from trainmaster.api.v1jobs.frameworks import JOB_NAME, OPERATOR_NAME
from trainmaster.client.view import View
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, Mapper, map_to_owner, map_to_self
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, V1Job
from trainmaster.kit.timeline import Now

if TYPE_CHECKING:
    from trainmaster.api.fields import FieldError
    from trainmaster.controllers.v1jobs.contract import V1Cluster

_OF_MPI_JOBS = (SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)


def reconcile(
    model: type[V1Job],
    view: View,
    request: Request,
    now: Now,
    refusals: Sequence[WriteRefusal] = (),
    cluster: V1Cluster | None = None,
) -> Plan:
    """`cluster`: None on one machine."""
    raw = view.find(model.gvr, request.namespace, request.name)
    if raw is None:
        return NOTHING
    job = model(raw)
    if job.is_deleting or not job.is_managed_here:
        return NOTHING
    # Loaded with the first job: most installations have none, and every start would pay for it.
    from trainmaster.api.v1jobs.validation import admit  # noqa: PLC0415
    from trainmaster.controllers.v1jobs.claims import V1Children  # noqa: PLC0415
    from trainmaster.controllers.v1jobs.passes import V1Pass  # noqa: PLC0415

    one = V1Pass(job, V1Children(view, job), now, cluster)
    if job.is_finished:
        one.clean_up()
    elif refusals:
        one.wait(*_explain(refusals[0]))
    elif job.is_suspended:
        one.suspend()
    elif cluster is not None and (errors := admit(model.framework, raw, None).errors):
        # On one machine such a job is not let in.
        one.wait(*_explain_errors(job, errors))
    else:
        one.run()
    return one.draft.build_plan()


def _explain(refusal: WriteRefusal) -> tuple[Waiting, str]:
    """With the reason of the event."""
    if isinstance(refusal.write, Create):
        waiting = Waiting("FailedCreate", f"Error creating: {refusal.error.message}")
        return waiting, f"{waiting.reason}{refusal.write.obj['kind']}"
    return Waiting("Refused", refusal.error.message), ""


def _explain_errors(job: V1Job, errors: Sequence[FieldError]) -> tuple[Waiting, str]:
    """As upstream, where it has no webhook for the kind."""
    text = f"{job.framework.kind} failed validation because {'; '.join(map(str, errors))}"
    return Waiting("FailedValidation", text), f"{job.framework.kind}FailedValidation"


def build_child_mapper(model: type[V1Job]) -> Mapper:
    """The job that controls an object. For an orphan, the job that its labels name, which may adopt it."""
    map_owner = map_to_owner(model.framework.kind)

    def map_child(view: View, obj: Object) -> Iterable[Request]:
        one = ObjectModel(obj)
        if one.controller is not None:
            return map_owner(view, obj)
        if one.labels.get(OPERATOR_NAME) != model.framework.controller or JOB_NAME not in one.labels:
            return ()
        return (Request(one.namespace, one.labels[JOB_NAME]),)

    return map_child


def build_controller(model: type[V1Job], cluster: V1Cluster | None = None) -> Controller:
    map_child = build_child_mapper(model)
    more = () if cluster is None else cluster.list_kinds(model)
    children = (PODS, *(_OF_MPI_JOBS if model is MPIJob else (SERVICES,)), *more)
    return Controller(
        name=model.framework.singular,
        kind=model.gvr,
        reconcile=partial(reconcile, model, cluster=cluster),
        reporter=model.framework.controller,
        sources=(
            ChangeSource(model.gvr, map_to_self),
            *(ChangeSource(gvr, map_child, owner=model.framework.kind) for gvr in children),
        ),
    )


CONTROLLERS = tuple(build_controller(model) for model in MODELS)
