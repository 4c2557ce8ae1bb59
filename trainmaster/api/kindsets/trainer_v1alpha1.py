"""TrainJob and its runtimes.

The schema is Trainer 2.3's plus the older override shapes, which the TrainJob controller interprets. Rules that depend
on other objects (such as whether the runtime exists) are in `api.admission`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, RUNTIME_SPEC, TRAIN_JOB_SPEC, H
from trainmaster.api.declaring.kinds import ALL_VERBS, READ, WRITE, Column, Kind, QuotaRules, TenantRules
from trainmaster.api.fields import FieldError
from trainmaster.api.kindsets import jobset_v1alpha2
from trainmaster.api.labels import ANCESTOR_STEP, RESERVED_IN_TEMPLATES
from trainmaster.api.lifecycle.templates import check_levels, warn_templates
from trainmaster.api.lifecycle.term_names import DEADLINE_FIELD
from trainmaster.api.lifecycle.terms import check_annotations
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_spec
from trainmaster.api.schemas import load
from trainmaster.api.training.steps import get_ml_policy, get_runtime_spec, get_template_spec, list_jobs

_OLDER_SHAPES = {
    "podTemplateOverrides": "spec.podTemplateOverrides is the shape of Trainer 2.1; use spec.runtimePatches",
    "podSpecOverrides": "spec.podSpecOverrides is the shape of Trainer 2.0; use spec.runtimePatches",
    "labels": "spec.labels is the shape of Trainer 2.1; use spec.runtimePatches",
    "annotations": "spec.annotations is the shape of Trainer 2.1; use spec.runtimePatches",
}


def validate_trainjob(new: Object, old: Object | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    trainer = spec.get("trainer") or {}
    errors: list[FieldError] = []
    nodes, processes = trainer.get("numNodes"), trainer.get("numProcPerNode")
    if nodes is not None and nodes < 1:
        errors.append(fields.invalid("spec.trainer.numNodes", nodes, "must be greater than or equal to 1"))
    if isinstance(processes, int) and processes < 1:
        text = "numProcPerNode must be greater than or equal to 1"
        errors.append(fields.invalid("spec.trainer.numProcPerNode", processes, text))
    if old is not None:
        # The schema's rule only compares existing values; this also refuses adding or removing one.
        before = old.get("spec") or {}
        for name in ("trainer", "initializer"):
            if (name in before) != (name in spec):
                errors.append(fields.invalid(f"spec.{name}", fields.OMIT, "field is immutable"))
        if before.get(DEADLINE_FIELD) and not spec.get(DEADLINE_FIELD):
            # It may be added, as upstream; then it stays.
            errors.append(fields.invalid(f"spec.{DEADLINE_FIELD}", fields.OMIT, "field is immutable"))
    own, second = spec.get("ttlSecondsAfterFinished"), (spec.get("cleanupPolicy") or {}).get("ttlSecondsAfterFinished")
    if own is not None and second is not None and own != second:
        text = "must equal spec.ttlSecondsAfterFinished when both are set"
        errors.append(fields.invalid("spec.cleanupPolicy.ttlSecondsAfterFinished", second, text))
    return [*errors, *check_annotations(new)]


def warn_trainjob(new: Object, old: Object | None) -> list[str]:
    spec = new.get("spec") or {}
    return [text for name, text in _OLDER_SHAPES.items() if spec.get(name)]


def validate_runtime(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, ml_policy = get_runtime_spec(new), get_ml_policy(new)
    nodes = ml_policy.get("numNodes")
    if nodes is not None and nodes < 1:
        errors.append(fields.invalid("spec.mlPolicy.numNodes", nodes, "must be greater than or equal to 1"))
    slots = (ml_policy.get("mpi") or {}).get("numProcPerNode")
    if slots is not None and slots < 1:
        text = "NumProcPerNode in mpiPolicy must be >= 1"
        errors.append(fields.invalid("spec.mlPolicy.mpi.numProcPerNode", slots, text))
    elastic = (ml_policy.get("torch") or {}).get("elasticPolicy")
    if elastic:
        errors += _check_elastic(elastic, nodes)
    policy = spec.get("runPolicy") or {}
    for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        if name in spec and name in policy and spec[name] != policy[name]:
            text = f"must equal spec.{name} when both are set"
            errors.append(fields.invalid(f"spec.runPolicy.{name}", policy[name], text))
    # Objects stored before this rule existed can still be edited otherwise.
    known = set() if old is None else {str(error) for error in check_levels(old)}
    errors += [error for error in check_levels(new) if str(error) not in known]
    return [*errors, *check_annotations(new)]


def _check_elastic(elastic: Object, nodes: int | None) -> list[FieldError]:
    errors: list[FieldError] = []
    if nodes is not None:
        text = "numNodes should not be set if torch.elasticPolicy is configured"
        errors.append(fields.invalid("spec.mlPolicy", fields.OMIT, text))
    path = "spec.mlPolicy.torch.elasticPolicy"
    least, most = elastic.get("minNodes", 1), elastic.get("maxNodes")
    if most is not None and most < least:
        errors.append(fields.invalid(f"{path}.maxNodes", most, f"must be at least minNodes ({least})"))
    if elastic.get("metrics"):
        errors.append(fields.forbidden(f"{path}.metrics", "is not supported: nobody scales a job"))
    return errors


def warn_runtime(new: Object, old: Object | None) -> list[str]:
    texts = list(warn_templates(new))
    jobs = list_jobs(get_template_spec(new))
    labels = [((job.get("template") or {}).get("metadata") or {}).get("labels") or {} for job in jobs]
    if jobs and not any(label.get(ANCESTOR_STEP) == "trainer" for label in labels):
        text = f"no replicatedJob's template has the label {ANCESTOR_STEP}: trainer;"
        texts.append(f"{text} spec.trainer of TrainJobs that use this runtime has no effect")
    return texts


def _get_state(job: Object, now: float) -> Any:
    """Upstream shows the type of the last condition, whatever its status: Suspended for a job that was resumed."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((one.get("type") for one in conditions if one.get("status") == "True"), None)


def _get_waiting(job: Object, now: float) -> Any:
    return ((job.get("status") or {}).get("waiting") or {}).get("reason")


def _get_progress(job: Object, now: float) -> Any:
    done = _get_report(job).get("progressPercentage")
    return None if done is None else f"{done}%"


def _get_time_left(job: Object, now: float) -> Any:
    """The reported remaining time minus the time since the report. Empty if the job has finished or is waiting."""
    report = _get_report(job)
    left, moment = report.get("estimatedRemainingSeconds"), report.get("lastUpdatedTime")
    is_still = any(cells.is_condition_true(job, kind) for kind in ("Complete", "Failed", "Suspended"))
    if left is None or moment is None or is_still:
        return None
    return cells.render_duration(max(0.0, left - max(0.0, now - cells.seconds_of(moment))))


def _get_report(job: Object) -> Object:
    report: Object = (job.get("status") or {}).get("trainerStatus") or {}
    return report


def _get_runtime(job: Object, now: float) -> Any:
    return ((job.get("spec") or {}).get("runtimeRef") or {}).get("name")


def _get_nodes(job: Object, now: float) -> Any:
    return ((job.get("spec") or {}).get("trainer") or {}).get("numNodes")


def _kind(name: str, plural: str, *, namespaced: bool, **behaviour: Any) -> Kind:
    definition = f"org.kubeflow.trainer.v1alpha1.{name}"
    return Kind(
        group="trainer.kubeflow.org",
        version="v1alpha1",
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced=namespaced,
        definition=definition,
        load=partial(load, definition),
        custom=True,
        **behaviour,
    )


def list_trainjob_gangs(trainjob: Fields) -> Iterator[tuple[int, Fields]]:
    """The TrainJob itself is the template, because any part of it may end up in every Pod."""
    spec = read_spec(trainjob)
    yield int(read_fields(spec, "trainer").get("numNodes") or 1), {**spec, "metadata": trainjob["metadata"]}


def list_runtime_gangs(runtime: Fields) -> Iterator[tuple[int, Fields]]:
    spec = read_spec(runtime)
    yield int(read_fields(spec, "mlPolicy").get("numNodes") or 1), {}
    yield from jobset_v1alpha2.list_gangs(read_fields(spec, "template"))


TRAIN_JOB = _kind(
    "TrainJob",
    "trainjobs",
    namespaced=True,
    status=True,
    columns=(
        cells.NAME,
        Column("State", _get_state, json_path='.status.conditions[?(@.status=="True")].type'),
        cells.CUSTOM_AGE,
        Column("Waiting", _get_waiting, json_path=".status.waiting.reason", description="Why nothing happens yet."),
        Column(
            "Progress",
            _get_progress,
            json_path=".status.progress",
            description="How much of the training is done, as the program reports it, in percent.",
        ),
        Column(
            "ETA",
            _get_time_left,
            json_path=".status.trainerStatus.estimatedRemainingSeconds",
            description="How long it will still take, as the program reports it.",
        ),
        Column("Runtime", _get_runtime, priority=1, json_path=".spec.runtimeRef.name"),
        Column("Nodes", _get_nodes, type="integer", priority=1, json_path=".spec.trainer.numNodes"),
    ),
    validate=validate_trainjob,
    warnings=warn_trainjob,
    quotas=QuotaRules(writes_data=True),
    tenants=TenantRules(list_gangs=list_trainjob_gangs, reserved=RESERVED_IN_TEMPLATES),
    roles={"view": {"": READ, "status": READ}, "edit": {"": WRITE}, "tenant": {"": ALL_VERBS}},
    fidelity={**OBJECT, "spec": TRAIN_JOB_SPEC, "status": H},
)
# No `default`: as upstream a runtime may have no spec, but not an empty one. `get_runtime_spec` reads both.
_RUNTIME: dict[str, Any] = {
    "columns": (cells.NAME, cells.CUSTOM_AGE),
    "validate": validate_runtime,
    "warnings": warn_runtime,
    "tenants": TenantRules(list_gangs=list_runtime_gangs, reserved=RESERVED_IN_TEMPLATES),
    "fidelity": {**OBJECT, "spec": RUNTIME_SPEC},
}
TRAINING_RUNTIME = _kind(
    "TrainingRuntime",
    "trainingruntimes",
    namespaced=True,
    roles={"view": {"": READ}, "edit": {"": WRITE}, "tenant": {"": ALL_VERBS}},
    **_RUNTIME,
)
CLUSTER_TRAINING_RUNTIME = _kind(
    "ClusterTrainingRuntime",
    "clustertrainingruntimes",
    namespaced=False,
    roles={"view": {"": READ}, "runtime-viewer": {"": READ}},
    **_RUNTIME,
)

KINDS = (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAIN_JOB)
