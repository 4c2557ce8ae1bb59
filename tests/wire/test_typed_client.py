"""Typed clients of Go (Kueue, any operator) read an object, change a field and write back what their structs keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.typed_client import check_jobset_stored, get_kind, read_objects, write_back
from tests.support.clients import Target
from trainmaster.api.declaring import catalogue

pytestmark = pytest.mark.wire

UNTYPED = {"MXJob"}
"""training-operator 1.9 has no types for them any more."""


def test_go_can_write_back_every_kind(target: Target, namespace: str, tmp_path: Path) -> None:
    written = write_back(target, namespace, tmp_path)
    assert [text for one in written for text in one.list_refusals()] == []
    check_jobset_stored(written)


def test_there_is_an_object_of_every_kind_that_clients_may_update() -> None:
    served = {kind.kind for kind in catalogue.build().kinds if "update" in kind.verbs}
    assert served - {get_kind(obj).kind for obj in read_objects("any")} == UNTYPED
