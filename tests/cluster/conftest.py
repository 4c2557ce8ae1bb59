"""Fixtures of the tier. The operator is deployed once, and what the chosen tests need is submitted at the beginning:
images, Pods and restarts take seconds each, and most of that time is waiting.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.deployment import deploy
from tests.cluster.site import Site
from tests.kube.real import RealCluster
from trainmaster.kit.ids import SystemIds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that remove the operator come last."""
    items.sort(key=lambda item: item.path == Path(__file__).parent / "test_install.py")


@pytest.fixture(scope="session")
def operated(real_cluster: RealCluster) -> RealCluster:
    """The cluster with our operator at work in it."""
    if real_cluster.toolbox.find_program("helm") is None:
        pytest.skip(real_cluster.toolbox.why_missing("helm"))
    deploy(real_cluster)
    return real_cluster


@pytest.fixture(scope="session")
def site(operated: RealCluster, request: pytest.FixtureRequest) -> Site:
    """The namespace of all tests; each file has jobs of its own, made by its function `submit`."""
    site = make_site(operated)
    files = {file for item in request.session.items if (file := item.getparent(pytest.Module)) is not None}
    for file in sorted(files, key=lambda file: file.nodeid):
        if file.path.parent == Path(__file__).parent and hasattr(file.obj, "submit"):
            file.obj.submit(site)
    return site


def make_site(cluster: RealCluster, **labels: str) -> Site:
    """A namespace of its own, with these labels."""
    name = f"site-{SystemIds().suffix(8)}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(namespace))
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    return Site(cluster, name)
