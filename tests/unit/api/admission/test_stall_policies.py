"""What is said about the policy of a new job about its stalls."""

from __future__ import annotations

import pytest

from tests.unit.controllers.world import World, make_runtime, make_trainjob
from trainmaster.api.admission.trainjobs import admit_create
from trainmaster.api.labels import ON_STALL
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES

pytestmark = pytest.mark.unit


def warn(policy: str, restarts: int | None) -> list[str]:
    world = World()
    policies = {} if restarts is None else {"failurePolicy": {"maxRestarts": restarts}}
    world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime(jobset=policies))
    trainjob = make_trainjob()
    trainjob["metadata"]["annotations"] = {ON_STALL: policy}
    return list(admit_create(trainjob, world, embedded=True).warnings)


@pytest.mark.parametrize("restarts", [None, 0])
def test_restarts_that_the_runtime_does_not_allow_are_a_contradiction(restarts: int | None) -> None:
    [text] = warn("restart", restarts)
    assert 'runtime "torch-distributed" allows no restarts' in text
    assert "it fails" in text


@pytest.mark.parametrize(("policy", "restarts"), [("restart", 1), ("observe", 0), ("fail", 0)])
def test_everything_else_goes_together(policy: str, restarts: int) -> None:
    assert warn(policy, restarts) == []
