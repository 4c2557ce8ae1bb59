"""Session fixtures. `seam_cluster`: a whole control plane with JobSet, fake nodes and no Trainer; `trainer_cluster`:
the same with upstream's Trainer and upstream's kinds, for what works beside it.

It is started once for all tests of a run that need it. kwok lets Pods run at once and never ends them: the script of a
test does (`stage.KwokNode`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tools.toolbox import Toolbox
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.rights import Duties

_NEVER_MS = 3_600_000


@pytest.fixture(scope="session")
def seam_cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "kwok"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    parts = Parts(jobset=True, nodes=2, complete_ms=_NEVER_MS, unlimited=True)
    with KubeCluster(parts, toolbox=toolbox, manifests=json.dumps(build_manifests())) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def trainer_cluster() -> Iterator[KubeCluster]:
    """Pods run for a moment and succeed; our own kinds are not installed."""
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "trainer", "kwok"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    manifests = json.dumps(build_manifests(Duties(companion=True, history=True)))
    with KubeCluster(Parts(trainer=True, nodes=1, unlimited=True), toolbox=toolbox, manifests=manifests) as cluster:
        yield cluster
