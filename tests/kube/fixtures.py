"""The session fixtures `kube`, one real control plane for all tests of a run that need one, and `real_cluster`, one
with a node that runs Pods.

tests/conftest.py makes them known everywhere. Tests share them, so each works in a namespace of its own. A machine on
which the programs could not be built skips the test and says why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.cluster import KubeCluster, Parts
from tests.kube.namespaces import NoNamespaces, check_machine
from tests.kube.real import RealCluster, make_real_cluster
from tools.toolbox import Toolbox, Unavailable

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


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """A control plane with JobSet and one real node that has the images of tests/kube/images.py. Our kinds are there,
    the operator is not."""
    try:
        check_machine()
        cluster = make_real_cluster()
    except (NoNamespaces, Unavailable) as error:
        pytest.skip(str(error))
    with cluster:
        yield cluster
