"""What tests/wire/test_typed_client.py expects of our server, on a real control plane with JobSet and Trainer.

There is no training-operator, so its kinds are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.cluster import KubeCluster
from tests.kube.typed_client import check_jobset_stored, write_back
from tests.support.clients import Target

pytestmark = pytest.mark.kube


def test_go_can_write_back_every_kind_except_zeros_in_fields_that_cel_compares(
    trainer_cluster: KubeCluster, tmp_path: Path
) -> None:
    namespace = "typed-client"
    trainer_cluster.kubectl("create", "namespace", namespace)
    target = Target("kube", trainer_cluster.kubeconfig, trainer_cluster.issue)
    written = write_back(target, namespace, tmp_path, without="kubeflow.org")
    refused = [one.name for one in written if one.list_refusals()]
    assert refused == ["JobSet zero", "TrainingRuntime zero", "TrainJob zero"]
    check_jobset_stored(written)
