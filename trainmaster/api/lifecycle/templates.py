"""TTL and deadline at the wrong level: inside a runtime's JobSet or Job template.

A TTL there deletes the JobSet or the Job but not the TrainJob; a deadline there conflicts with the TrainJob's own. They
are accepted with a warning, unless the runtime sets its own as well; then they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.training.steps import get_runtime_spec, get_template_spec

_TRAP = {
    TTL_FIELD: "deletes what the TrainJob runs, not the TrainJob; "
    "set spec.ttlSecondsAfterFinished on the TrainJob or the runtime",
    DEADLINE_FIELD: "ends the Job behind the TrainJob's back; "
    "set spec.activeDeadlineSeconds on the TrainJob or the runtime",
}


def check_levels(runtime: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, annotation in ((TTL_FIELD, TTL_ANNOTATION), (DEADLINE_FIELD, DEADLINE_ANNOTATION)):
        above = _find_above(runtime, field, annotation)
        for path, value in list_inside(runtime, field) if above else ():
            text = f"the runtime has it too, in {above}: remove it here, two levels would fight"
            yield fields.invalid(path, value, text)


def warn_templates(runtime: Mapping[str, Any]) -> Iterator[str]:
    for field, trap in _TRAP.items():
        for path, _ in list_inside(runtime, field):
            yield f"{path} {trap}"


def list_inside(runtime: Mapping[str, Any], field: str) -> Iterator[tuple[str, int]]:
    """(path, value) of the field in the JobSet template and in each Job template."""
    jobset = get_template_spec(runtime)
    if field == TTL_FIELD and field in jobset:
        yield f"spec.template.spec.{field}", jobset[field]
    for index, job in enumerate(jobset.get("replicatedJobs") or ()):
        spec = (job.get("template") or {}).get("spec") or {}
        if field in spec:
            yield f"spec.template.spec.replicatedJobs[{index}].template.spec.{field}", spec[field]


def _find_above(runtime: Mapping[str, Any], field: str, annotation: str) -> str:
    spec = get_runtime_spec(runtime)
    if field in spec:
        return f"spec.{field}"
    if field in (spec.get("runPolicy") or {}):
        return f"spec.runPolicy.{field}"
    annotations = runtime["metadata"].get("annotations") or {}
    return f"metadata.annotations[{annotation}]" if annotation in annotations else ""
