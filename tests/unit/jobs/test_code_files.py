"""Which ConfigMap has the code of a job."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.labels import CODE_MAP
from trainmaster.api.meta import Object
from trainmaster.jobs.code_files import CodeMapReference, find_code_map

pytestmark = pytest.mark.unit


def make_job(volume: Any = None, **annotations: str) -> Object:
    overrides = [{"targetJobs": [{"name": "node"}], "spec": {"volumes": [volume]}}] if volume else []
    return {"metadata": {"name": "a", "annotations": annotations}, "spec": {"podTemplateOverrides": overrides}}


def test_the_own_copy_of_a_job_is_found_wherever_it_is_mounted() -> None:
    items = [{"key": "file-0", "path": "pkg/model.py"}]
    found = find_code_map(make_job({"name": "v", "configMap": {"name": "a-script", "items": items}}))
    assert found == CodeMapReference("a-script", {"file-0": "pkg/model.py"})
    patch = {"trainingRuntimeSpec": {"template": [{"volumes": [{"configMap": {"name": "a-script"}}]}]}}
    job = {"metadata": {"name": "a"}, "spec": {"runtimePatches": [patch]}}
    assert find_code_map(job) == CodeMapReference("a-script")


def test_other_configmaps_are_no_code() -> None:
    assert find_code_map(make_job({"name": "v", "configMap": {"name": "settings"}})) is None
    assert find_code_map(make_job()) is None
    assert find_code_map(make_job(**{CODE_MAP: "a-code-x"})) == CodeMapReference("a-code-x")
