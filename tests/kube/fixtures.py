"""The session fixture `kube`: one real control plane for all tests of a run that need one.

tests/conftest.py makes it known everywhere. Tests share it, so each works in a namespace of its own. A machine on which
the programs could not be built skips the test and says why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.cluster import KubeCluster, Parts
from tools.toolbox import Toolbox

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


@pytest.fixture(scope="session")
def kube() -> Iterator[KubeCluster]:
    """etcd, kube-apiserver and controller manager: `.server`, `.token`, `.ca`, `.kubeconfig`, `.issue()`."""
    toolbox = Toolbox()
    for name in NEEDED:
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    with KubeCluster(Parts(unlimited=True), toolbox=toolbox) as cluster:
        yield cluster
