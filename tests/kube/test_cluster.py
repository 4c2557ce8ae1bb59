"""The control plane that others compare us with is the real one, and its helpers work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kube.cluster import KubeCluster

pytestmark = pytest.mark.kube


def test_it_is_the_pinned_version_with_working_control_loops(kube: KubeCluster) -> None:
    version = json.loads(kube.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    pins = (Path(__file__).parent / "go" / "kube" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {version}" in pins
    assert kube.kubectl("get", "serviceaccount", "default", "-o", "name").strip() == "serviceaccount/default"


def test_an_issued_certificate_is_that_user(kube: KubeCluster, tmp_path: Path) -> None:
    certificate, key = kube.issue("jane", ("team-a",), tmp_path)
    flags = [f"--client-certificate={certificate}", f"--client-key={key}", f"--server={kube.server}"]
    flags += [f"--certificate-authority={kube.ca}", "--kubeconfig=/dev/null"]
    who = json.loads(kube.kubectl(*flags, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert (who["username"], "team-a" in who["groups"]) == ("jane", True)
