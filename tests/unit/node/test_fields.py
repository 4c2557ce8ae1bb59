"""Pods that this node does not run say why, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.fields import find_refusal
from trainmaster.shim.protocol import FULL, PLAIN

pytestmark = pytest.mark.unit

CLUSTER = [{"name": "TF_CONFIG", "value": "{}"}]


def make_pod(kind: str, *env: Object, **spec: Any) -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "a", "uid": "u", "controller": True}
    labels = {"training.kubeflow.org/operator-name": f"{kind.lower()}-controller"}
    meta = {"name": "a-worker-0", "namespace": "ns", "uid": "p", "labels": labels, "ownerReferences": [owner]}
    return Pod({"metadata": meta, "spec": {"containers": [{"name": "c", "env": list(env)}], **spec}})


def test_a_v1_job_that_cannot_work_at_the_plain_level_says_so_at_once() -> None:
    for pod, want in (
        (
            make_pod("MPIJob"),
            "an MPIJob needs the isolation level full or user, because kubexec.sh uses absolute paths",
        ),
        (make_pod("TFJob", *CLUSTER), "a TFJob of several Pods needs the isolation level full or user"),
    ):
        assert find_refusal(pod, PLAIN).startswith(want)
        assert find_refusal(pod, PLAIN).endswith("; this server uses plain (see `trainmaster doctor`)")
        assert find_refusal(pod, FULL) == ""


def test_all_others_run() -> None:
    for pod in (make_pod("TFJob"), make_pod("PyTorchJob", *CLUSTER), make_pod("JAXJob")):
        assert find_refusal(pod, PLAIN) == ""


def test_fields_that_are_not_supported_are_named_at_every_level() -> None:
    pod = make_pod("PyTorchJob", volumes=[{"name": "v", "csi": {"driver": "x"}}])
    assert "spec.volumes[0].csi of driver x" in find_refusal(pod, FULL)
