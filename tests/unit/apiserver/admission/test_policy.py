"""The ConfigMap `trainmaster-policy` is checked when it is written; other ConfigMaps are nobody's business."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import Invalid
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def build(name: str = "trainmaster-policy", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def write(body: dict[str, Any]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CONFIG_MAPS, body, "kubeflow-system")

    run_virtual(main())


def test_a_good_policy_is_stored() -> None:
    write(build(jobRetentionPolicy="delete_on_completion", failedJobsHistoryLimit="5"))


def test_a_bad_policy_is_refused_with_a_cause_for_each_key() -> None:
    with pytest.raises(Invalid) as refused:
        write(build(ttlSecondsAfterFinished="soon", jobRetention="retain"))
    causes = refused.value.details["causes"]
    assert [cause["field"] for cause in causes] == ["data.ttlSecondsAfterFinished", "data.jobRetention"]
    assert "supported values" in causes[1]["message"]


def test_another_config_map_may_say_what_it_likes() -> None:
    write(build("other", ttlSecondsAfterFinished="soon"))
