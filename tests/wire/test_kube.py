"""The scenarios that are marked for it, on a real kube-apiserver: what our tables expect is what a cluster says."""

from __future__ import annotations

import pytest

from tests.support.clients import Target
from tests.support.kubectl import Kubectl
from tests.wire import test_apply, test_auth, test_delete_wait, test_discovery, test_read, test_write
from tests.wire.scenario import Scenario, play

pytestmark = pytest.mark.kube

VERSIONS = "newest"
MODULES = (test_discovery, test_read, test_write, test_apply, test_delete_wait, test_auth)
SCENARIOS = [item for module in MODULES for item in module.SCENARIOS if item.kube]


@pytest.fixture
def target(kube_target: Target) -> Target:
    return kube_target


def test_a_cluster_says_the_same(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)
