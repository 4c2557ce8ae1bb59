"""Runtimes that say next to nothing: all who read runtimes take them as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.api.admission.frameworks import check_gang
from trainmaster.api.kindsets.trainer_v1alpha1 import TRAINING_RUNTIME
from trainmaster.api.lifecycle.templates import check_levels
from trainmaster.api.meta import Object
from trainmaster.api.training import snapshots
from trainmaster.api.training.overrides import merge_metadata
from trainmaster.api.training.steps import decide_num_nodes, get_template_spec, read_framework
from trainmaster.controllers.frameworks import inject_gangs
from trainmaster.controllers.trainjob.children import find_unsupported
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.services.jobs import build_runtime

pytestmark = pytest.mark.unit

JOB: Object = {"metadata": {"name": "j"}, "spec": {"runtimeRef": {"name": "bare"}}}
UNUSED: Any = None
READERS: dict[str, tuple[Callable[[Object], object], object]] = {
    "template": (get_template_spec, {}),
    "policy": (read_framework, ("", {})),
    "nodes": (lambda runtime: decide_num_nodes(JOB, runtime), 1),
    "metadata": (lambda runtime: merge_metadata(JOB, runtime), {}),
    "validation": (lambda runtime: TRAINING_RUNTIME.validate(runtime, None), []),
    "warnings": (lambda runtime: TRAINING_RUNTIME.warnings(runtime, None), []),
    "levels": (lambda runtime: list(check_levels(runtime)), []),
    "snapshot": (
        lambda runtime: snapshots.take(runtime, "TrainingRuntime")[0]["spec"],
        {"template": {"metadata": {}, "spec": {}}},
    ),
    "fields": (lambda runtime: find_unsupported(TrainJob(JOB), runtime), None),
    "gangs": (lambda runtime: inject_gangs(UNUSED, runtime, {}, UNUSED), []),
    "admission": (lambda runtime: check_gang(JOB, runtime, UNUSED), []),
    "rest": (lambda runtime: build_runtime(TrainingRuntime(runtime))["max_restarts"], 0),
}


@pytest.mark.parametrize("rest", [{}, {"spec": None}, {"spec": {}}], ids=["no spec", "null", "empty"])
@pytest.mark.parametrize("reader", READERS)
def test_a_runtime_without_a_spec_can_be_read(reader: str, rest: Object) -> None:
    read, want = READERS[reader]
    assert read({"kind": "TrainingRuntime", "metadata": {"name": "bare"}, **rest}) == want
