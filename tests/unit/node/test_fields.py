"""Pods that this node does not run say why, in a sentence."""

from __future__ import annotations

import pytest

from trainmaster.jobs.models.pods import Pod
from trainmaster.node.fields import find_refusal

pytestmark = pytest.mark.unit


def test_fields_that_are_not_supported_are_named() -> None:
    spec = {"containers": [{"name": "c"}]}
    assert find_refusal(Pod({"metadata": {}, "spec": spec})) == ""
    pod = Pod({"metadata": {}, "spec": {**spec, "volumes": [{"name": "v", "csi": {"driver": "x"}}]}})
    assert find_refusal(pod).startswith("this node does not carry out spec.volumes[0].csi of driver x")
