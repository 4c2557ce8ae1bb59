"""Which of our fields the definitions of a cluster lack, and who else writes the status of TrainJobs."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.kit.clock import format_time
from trainmaster.operator.definitions import list_lacking
from trainmaster.operator.others import OtherWriters

pytestmark = pytest.mark.unit

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def build() -> Object:
    kind = next(kind for kind in catalogue.build().kinds if kind.gvr == TRAIN_JOBS)
    return deepcopy(crd.build_crd(kind))


def schema(definition: Object) -> Object:
    found: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def test_our_own_definition_lacks_nothing() -> None:
    assert list_lacking(build(), TRAIN_JOBS) == []


def test_the_outermost_fields_that_are_missing_are_named() -> None:
    found = build()
    del schema(found)["spec"]["properties"]["ttlSecondsAfterFinished"]
    del schema(found)["status"]["properties"]["retention"]
    assert list_lacking(found, TRAIN_JOBS) == ["spec.ttlSecondsAfterFinished", "status.retention"]


def test_a_definition_that_keeps_everything_lacks_nothing() -> None:
    found = build()
    schema(found)["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert list_lacking(found, TRAIN_JOBS) == []


def test_a_newer_definition_disturbs_nobody() -> None:
    found = build()
    schema(found)["spec"]["properties"]["later"] = {"type": "string"}
    assert list_lacking(found, TRAIN_JOBS) == []


def write(manager: str, after: float, subresource: str = "status") -> Object:
    moment = format_time(_BEGAN + timedelta(seconds=after))
    entry = {"manager": manager, "operation": "Update", "subresource": subresource, "time": moment}
    return {"metadata": {"namespace": "ns", "name": "a", "managedFields": [entry]}}


def test_who_else_writes_the_status_while_we_work_is_a_second_controller() -> None:
    others = OtherWriters(_BEGAN)
    for harmless in (
        write("trainjob", 5),
        write("trainer-status", 5),
        write("kubectl-edit", 5),
        write("kueue", 5, subresource=""),
        write("manager", -5),
    ):
        others.notice(harmless)
    assert others() == []
    others.notice(write("manager", 5))
    (found,) = others()
    assert found.reason == "SecondController"
    assert found.text.startswith('"manager" also writes the status of trainjobs, of ns/a for example')
