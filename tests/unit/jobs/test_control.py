"""A TrainJob that is submitted again: what its manifest keeps, and what it is called."""

from __future__ import annotations

import pytest

from trainmaster.api.labels import RERUN_OF, RESTART
from trainmaster.jobs.control import list_new_names
from trainmaster.jobs.manifests import build_manifest

pytestmark = pytest.mark.unit


def test_a_manifest_that_is_submitted_again_does_not_ask_for_a_restart() -> None:
    old = {"metadata": {"name": "a", "uid": "u", "annotations": {RESTART: "3", "note": "x"}}, "spec": {"suspend": True}}
    new = build_manifest(old, "b", {RERUN_OF: "a u"})
    assert new["metadata"] == {"name": "b", "annotations": {"note": "x", RERUN_OF: "a u"}}
    assert new["spec"] == {}


def test_a_v1_job_that_is_submitted_again_is_not_suspended() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"runPolicy": {"suspend": True, "backoffLimit": 3}}}
    assert build_manifest(old, "b")["spec"] == {"runPolicy": {"backoffLimit": 3}}


def test_new_names_count_on_and_stay_short_enough() -> None:
    assert list_new_names("train")[:2] == ["train-2", "train-3"]
    assert list_new_names("train-2")[0] == "train-3"
    assert {len(name) for name in list_new_names("x" * 63)} == {63}
