"""Fixtures of the tier: the operator is deployed once, each file has a namespace of its own."""

from __future__ import annotations

import json

import pytest

from tests.cluster.deployment import deploy
from tests.cluster.site import Site
from tests.kube.real import RealCluster
from trainmaster.kit.ids import SystemIds


@pytest.fixture(scope="session")
def operated(real_cluster: RealCluster) -> RealCluster:
    """The cluster with our operator at work in it."""
    deploy(real_cluster)
    return real_cluster


@pytest.fixture(scope="module")
def site(operated: RealCluster) -> Site:
    name = f"site-{SystemIds().suffix(8)}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    operated.kubectl("create", "-f", "-", stdin=json.dumps(namespace))
    operated.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    return Site(operated, name)
