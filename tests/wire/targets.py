"""Describes the servers that the wire tests talk to as `Target`s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kube.cluster import KubeCluster
from tests.kube.managers import render
from tests.support.certificates import issue_certificate
from tests.support.clients import Issue, Target
from tests.support.server import start_server


@contextmanager
def start_ours(home: Path, environ: Mapping[str, str] | None = None) -> Iterator[Target]:
    """`trainmaster up` in a process of its own."""
    with start_server(home, environ=environ) as server:
        yield Target("ours", server.kubeconfig, issue_from(server.home / "pki"))


def issue_from(keys: Path) -> Issue:
    """Signs client certificates with the CA in a folder."""

    def issue(user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
        return issue_certificate(keys / "ca.crt", keys / "ca.key", user, groups, folder)

    return issue


def describe_kube(cluster: KubeCluster) -> Target:
    """A kube-apiserver with upstream's JobSet and Trainer kinds, but without their controllers and webhooks."""
    cluster.apply(render(cluster, "jobset", "config", ["components/crd"]))
    cluster.apply(render(cluster, "trainer", "manifests", ["base/crds"]))
    return Target("kube", cluster.kubeconfig, cluster.issue)


def describe_running(kubeconfig: Path) -> Target:
    """A cluster that somebody else started; client certificates can be had if its CA lies beside the kubeconfig."""
    return Target("kube", kubeconfig, issue_from(kubeconfig.parent))
