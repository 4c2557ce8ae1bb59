"""The operator's metrics: which jobs it counts, and what it answers."""

from __future__ import annotations

import re

import pytest

from tests.unit.apiserver.http.wire import FakeTransport
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.client.cache import WatchCache
from trainmaster.client.contract import PatchType
from trainmaster.edge.connection import Connection
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import PyTorchJob
from trainmaster.kit.metrics import Metrics
from trainmaster.operator.monitoring.metrics_server import MetricsPort, MetricsSettings, running_census
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit


def make(name: str) -> Object:
    containers = [{"name": "pytorch", "image": "x", "command": ["true"]}]
    worker = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": "default"}}
    return {**head, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}


def list_v1_lines(metrics: Metrics) -> list[str]:
    found = re.findall(r"^(trainmaster_v1_jobs\{.*|training_operator_.*)$", metrics.render(), re.MULTILINE)
    return [line for line in found if not line.endswith(" 0")]


def test_jobs_of_a_watch_cache_are_counted_as_they_change() -> None:
    async def main() -> None:
        metrics = Metrics()
        async with running_cluster() as cluster:
            client, clock = cluster.client, cluster.clock
            await client.create(PYTORCH.gvr, make("old"), "default")
            async with WatchCache(client, [TRAIN_JOBS, PYTORCH.gvr], clock=clock) as cache:
                await cache.wait_synced()
                async with running_census(cache, (TrainJob, PyTorchJob), metrics, clock):
                    await client.create(PYTORCH.gvr, make("new"), "default")
                    end = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    status = {"status": {"conditions": [end]}}
                    await client.patch(PYTORCH.gvr, "old", PatchType.MERGE, status, "default", subresource="status")
                    await clock.sleep(1)
                    own = 'job_namespace="default",framework="pytorch"'
                    assert list_v1_lines(metrics) == [
                        f"training_operator_jobs_created_total{{{own}}} 1",
                        f"training_operator_jobs_successful_total{{{own}}} 1",
                        'trainmaster_v1_jobs{kind="PyTorchJob",state="Complete",namespace="default"} 1',
                        'trainmaster_v1_jobs{kind="PyTorchJob",state="Pending",namespace="default"} 1',
                    ]
                    for name in ("old", "new"):
                        await client.delete(PYTORCH.gvr, name, "default")
                    await clock.sleep(1)
                    assert "trainmaster_v1_jobs{" not in metrics.render()

    run_virtual(main())


def ask(request: str) -> bytes:
    async def main() -> bytes:
        metrics, transport = Metrics(), FakeTransport()
        async with MetricsPort(metrics, MetricsSettings("127.0.0.1", 0), VirtualClock()) as port:
            connection = Connection(port)
            connection.connection_made(transport)
            connection.data_received(f"{request} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await settle()
            connection.connection_lost(None)
        return bytes(transport.sent)

    return run_virtual(main())


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        ("GET /metrics", 200),
        ("GET /metrics?name[]=up", 200),
        ("GET /", 404),
        ("GET /debug/pprof", 404),
        ("POST /metrics", 405),
    ],
)
def test_metrics_are_all_that_the_port_answers(request_line: str, code: int) -> None:
    assert ask(request_line).startswith(f"HTTP/1.1 {code} ".encode())
