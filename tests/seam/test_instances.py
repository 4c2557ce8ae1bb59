"""Two installations on one cluster, each for other namespaces, with the rights and webhooks that they have there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flow.stage import make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.operator_run import SECONDS, operating, write_kubeconfig
from trainmaster.kit.ids import SystemIds
from trainmaster.operator.install import read_values
from trainmaster.operator.install.building import build_foreground_objects
from trainmaster.operator.names import NAME, name_on_cluster

pytestmark = pytest.mark.kube

_UNREACHED = "failed calling webhook"


@dataclass(frozen=True)
class Installation:
    cluster: KubeCluster
    instance: str
    url: str

    @property
    def own(self) -> str:
        return f"system-{self.instance}"

    @property
    def jobs(self) -> str:
        return f"jobs-{self.instance}"

    def install(self) -> None:
        for name in (self.own, self.jobs):
            self.cluster.kubectl("create", "namespace", name)
        values = {"instance": self.instance, "watchNamespaces": [self.jobs], "crds": {"enabled": False}}
        items = build_foreground_objects(read_values(values), self.own, webhooks=True, url=self.url)
        self.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    @contextmanager
    def operated(self, folder: Path) -> Iterator[None]:
        """As its own service account; returns once it leads."""
        token = self.cluster.kubectl("create", "token", NAME, "-n", self.own).strip()
        config = write_kubeconfig(self.cluster, folder / f"{self.instance}.json", {"token": token})
        flags = ("--instance", self.instance, "--namespace", self.jobs, "--lease-namespace", self.own)
        port = self.url.rpartition(":")[2]
        reached = ("--webhook-url", self.url, "--webhook-port", port)
        with operating(config, folder / f"{self.instance}.log", *flags, *reached) as run:
            run.wait_for("operator.ready")
            yield

    def submit(self, name: str, runtime: str = "torch-distributed") -> str:
        """What the API server says, once it can call the webhook: it sees a new CA a moment after it was written."""
        end = time.monotonic() + SECONDS
        while _UNREACHED in (answer := self.submit_once(name, runtime)) and time.monotonic() < end:
            time.sleep(0.1)
        return answer

    def submit_once(self, name: str, runtime: str = "torch-distributed") -> str:
        trainjob = make_trainjob(name=name, runtime=runtime, suspend=True)
        trainjob["metadata"]["namespace"] = self.jobs
        try:
            return self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(trainjob))
        except AssertionError as refusal:
            return str(refusal)

    def uninstall(self) -> None:
        hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        self.cluster.kubectl("delete", hooks, name_on_cluster(NAME, self.instance), "--ignore-not-found")


def test_two_installations_share_a_cluster(seam_cluster: KubeCluster, tmp_path: Path) -> None:
    suffix = SystemIds().suffix(5)
    urls = (f"https://127.0.0.1:{seam_cluster.take_port()}" for _ in "ab")
    first, second = (Installation(seam_cluster, f"{suffix}-{name}", url) for name, url in zip("ab", urls, strict=True))
    try:
        for one in (first, second):
            one.install()
        with first.operated(tmp_path), second.operated(tmp_path):
            for one in (first, second):
                assert "must be created before" in one.submit("misspelt", "nowhere")
                assert "created" in one.submit("good")
                seam_cluster.kubectl("wait", "--for=create", "jobset/good", "-n", one.jobs, f"--timeout={SECONDS:g}s")
        # Neither looks after the other's namespaces, nor answers for them.
        with first.operated(tmp_path):
            assert _UNREACHED in second.submit_once("late")
    finally:
        for one in (first, second):
            one.uninstall()
