"""What v1 jobs have on clusters only: PodGroups, autoscalers, and a companion that leaves them to another operator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flow.test_v1_flow import make_job
from tests.kube.cluster import KubeCluster
from tests.kube.managers import VOLCANO_PODGROUPS
from tests.seam.stage import Site, open_site, write_again_and_again
from tests.seam.test_companion import command
from tests.seam.test_v1 import (
    end_only,
    finish,
    install,
    install_kinds,
    list_names,
    make_identity,
    running_site,
    submit,
    wait,
)
from trainmaster.api.meta import Object
from trainmaster.api.resources import (
    COSCHEDULING_POD_GROUPS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
    SERVICES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.v1jobs.frameworks import PYTORCH, TENSORFLOW
from trainmaster.client.contract import PatchType
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.operator.mode import OperatorSettings, running_operator
from trainmaster.operator.rights import Duties

pytestmark = pytest.mark.kube

METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1000m"}}}
]


@pytest.fixture(scope="module")
def with_pod_groups(seam_cluster: KubeCluster) -> Iterator[KubeCluster]:
    """Other tests that share the cluster are about a cluster that does not serve them."""
    coscheduling = seam_cluster.toolbox.find_manifest("trainer", "coscheduling.yaml")
    if coscheduling is None:
        pytest.skip(seam_cluster.toolbox.why_missing("trainer"))
    kinds = coscheduling.read_text(), json.dumps(VOLCANO_PODGROUPS)
    for kind in kinds:
        seam_cluster.apply(kind)
    yield seam_cluster
    for kind in kinds:
        seam_cluster.kubectl("delete", "-f", "-", stdin=kind)


def test_a_gang_has_its_pod_group_and_an_elastic_job_its_autoscaler(with_pod_groups: KubeCluster) -> None:
    async def main() -> None:
        async with running_site(with_pod_groups, end_only("worker"), "default-scheduler") as site:
            policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}
            job = make_job(PYTORCH, {"Worker": 2}, elasticPolicy=policy, runPolicy={"suspend": True})
            await submit(site, job, PYTORCH.gvr)
            await finish(site, PYTORCH.gvr, "Suspended")
            assert await list_names(site, COSCHEDULING_POD_GROUPS) == []
            assert await list_names(site, HORIZONTAL_POD_AUTOSCALERS) == []
            resumed = {"spec": {"runPolicy": {"suspend": False}}}
            await site.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, resumed, site.namespace)
            pods = await wait(lambda: list_names(site, PODS))
            group = await site.client.get(COSCHEDULING_POD_GROUPS, "a", site.namespace)
            assert group["spec"]["minMember"] == 2 and pods[0] == "a-worker-0"
            await finish(site, PYTORCH.gvr, "Succeeded")

            async def is_released() -> bool:
                return not await list_names(site, COSCHEDULING_POD_GROUPS)

            await wait(is_released)
            assert await list_names(site, HORIZONTAL_POD_AUTOSCALERS) == ["a"]
            writes = {call for call in site.calls if " horizontalpodautoscalers " in call}
            assert not any(call.startswith("PATCH") for call in writes), "1000m and 1 are the same amount"

    asyncio.run(main())


def test_volcano_admits_a_job_before_it_has_pods(with_pod_groups: KubeCluster) -> None:
    async def main() -> None:
        async with running_site(with_pod_groups, end_only("worker"), "volcano") as site:
            await submit(site, make_job(TENSORFLOW, {"PS": 1, "Worker": 1}), TENSORFLOW.gvr)

            async def is_queued() -> bool:
                job = await site.client.get(TENSORFLOW.gvr, "a", site.namespace)
                return bool((job.get("status") or {}).get("waiting", {}).get("reason") == "Queued")

            await wait(is_queued)
            assert await list_names(site, PODS) == await list_names(site, SERVICES) == []
            admitted = {"status": {"phase": "Inqueue"}}
            await site.client.patch(VOLCANO_POD_GROUPS, "a", PatchType.MERGE, admitted, site.namespace)

            async def has_pods() -> bool:
                return await list_names(site, PODS) == ["a-ps-0", "a-worker-0"]

            await wait(has_pods)
            pod = await site.client.get(PODS, "a-ps-0", site.namespace)
            assert pod["spec"]["schedulerName"] == "volcano"
            assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "a"

    asyncio.run(main())


@asynccontextmanager
async def running_companion(site: Site, history: Path) -> AsyncIterator[None]:
    """With the companion's role and nothing else."""
    await install(site, Duties(companion=True, history=True), "companion")
    settings = OperatorSettings((site.namespace,), site.namespace, companion=True, history=history)
    client = site.client.as_user(make_identity("companion"))
    async with running_operator(client, settings, clock=SystemClock(), ids=SystemIds()):
        yield


async def end(site: Site, name: str) -> None:
    """As another operator does."""
    moment = format_time(SystemClock().now())
    condition = {"type": "Succeeded", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": moment}
    status = {"status": {"conditions": [{**condition, "lastUpdateTime": moment}], "replicaStatuses": {}}}
    await site.client.patch(PYTORCH.gvr, name, PatchType.MERGE, status, site.namespace, subresource="status")


def test_a_companion_deletes_and_records_v1_jobs_and_runs_none(seam_cluster: KubeCluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site, Scope("storm") as scope:
            await install_kinds(site)
            async with running_companion(site, tmp_path):
                others = make_job(PYTORCH, {"Worker": 1})
                others["metadata"]["name"] = "untouched"
                await submit(site, others, PYTORCH.gvr)
                await submit(
                    site, make_job(PYTORCH, {"Worker": 1}, runPolicy={"ttlSecondsAfterFinished": 1}), PYTORCH.gvr
                )
                storm = write_again_and_again(site.client, PYTORCH.gvr, site.namespace, pause=0.0)
                work = scope.spawn(storm, name="storm")
                await end(site, "a")

                async def is_gone() -> bool:
                    return await list_names(site, PYTORCH.gvr) == ["untouched"]

                await wait(is_gone)
                work.cancel()
                left = await site.client.get(PYTORCH.gvr, "untouched", site.namespace)
                assert not left.get("status"), "nobody runs it"
                assert await list_names(site, PODS) == await list_names(site, SERVICES) == []

    asyncio.run(main())
    code, text = command("history", "list", "--archive", str(tmp_path), "-o", "json")
    lines: list[Object] = json.loads(text)
    assert code == 0 and [(line["name"], line["kind"], line["state"]) for line in lines] == [
        ("a", "PyTorchJob", "Complete")
    ]
