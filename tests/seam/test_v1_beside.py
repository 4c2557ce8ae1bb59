"""Beside the real training-operator: it runs TFJobs, ours runs PyTorchJobs, and a companion retains both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.test_v1_flow import make_job
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.training_operator import NAME, NAMESPACE, running_training_operator
from tests.seam.stage import Site, open_site
from tests.seam.test_companion import command
from tests.seam.test_v1 import finish, list_names, submit, wait
from tests.seam.test_v1_cluster import running_companion
from tools.toolbox import Toolbox
from trainmaster.api.lifecycle.term_names import TTL_ANNOTATION
from trainmaster.api.meta import Object
from trainmaster.api.resources import DEPLOYMENTS, PODS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainmaster.api.status import StatusError
from trainmaster.api.v1jobs.frameworks import PYTORCH, TENSORFLOW
from trainmaster.client.contract import PatchType
from trainmaster.jobs.models.v1jobs import PyTorchJob, TFJob, V1Job
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.mode import OperatorSettings, running_operator
from trainmaster.operator.rights import Duties

pytestmark = pytest.mark.kube

SCHEMES = ("tfjob",)


@pytest.fixture
def shared_cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "kwok", NAME):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    parts = Parts(training_operator=True, nodes=1, unlimited=True)
    with KubeCluster(parts, toolbox=toolbox) as cluster, running_training_operator(cluster, schemes=SCHEMES):
        yield cluster


def make_deployment() -> Object:
    """As in upstream's manifests. The process runs without it, but only the Deployment tells others about it."""
    flags = [f"--enable-scheme={scheme}" for scheme in SCHEMES]
    container = {"name": NAME, "image": f"kubeflow/{NAME}:v1", "command": ["/manager", *flags]}
    labels = {"control-plane": "kubeflow-training-operator"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "serviceAccountName": NAME}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def refuse(site: Site, model: type[V1Job]) -> str:
    settings = OperatorSettings(v1_jobs=(model,))
    with pytest.raises(OSError, match="training-operator") as caught:
        async with running_operator(site.client, settings, clock=SystemClock(), ids=SystemIds()):
            pass
    return str(caught.value)


async def remove_webhook(site: Site, name: str) -> None:
    """What the refusal asks for."""
    (found,) = (await site.client.list(VALIDATING_WEBHOOK_CONFIGURATIONS)).items
    kept = {"webhooks": [webhook for webhook in found["webhooks"] if webhook["name"] != name]}
    configuration = found["metadata"]["name"]
    await site.client.patch(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration, PatchType.MERGE, kept)


async def list_managers(site: Site, pod: str) -> set[str]:
    """Who wrote it."""
    found = await site.client.get(PODS, pod, site.namespace)
    return {entry["manager"] for entry in found["metadata"]["managedFields"]}


def read_records(archive: Path) -> dict[tuple[str, str], str]:
    code, text = command("history", "list", "--archive", str(archive), "-o", "json")
    assert code == 0, text
    return {(line["kind"], line["name"]): line["state"] for line in json.loads(text)}


def test_each_operator_runs_its_kinds_and_a_companion_retains_all(shared_cluster: KubeCluster, tmp_path: Path) -> None:
    shared_cluster.apply(json.dumps(build_manifests(Duties(v1_jobs=(PyTorchJob,)))))

    async def main() -> None:
        async with open_site(shared_cluster) as site:
            await site.client.create(DEPLOYMENTS, make_deployment(), NAMESPACE)
            assert "TFJobs" in await refuse(site, TFJob)
            with pytest.raises(StatusError, match="failed calling webhook"):
                await submit(site, make_job(PYTORCH, {"Master": 1}), PYTORCH.gvr)
            webhook = "validator.pytorchjob.training-operator.kubeflow.org"
            assert webhook in await refuse(site, PyTorchJob)
            await remove_webhook(site, webhook)
            site.v1_jobs = (PyTorchJob,)
            await site.start()
            async with running_companion(site, tmp_path):
                await submit(site, make_job(PYTORCH, {"Master": 1, "Worker": 1}), PYTORCH.gvr)
                await submit(site, make_job(TENSORFLOW, {"Chief": 1, "PS": 1}), TENSORFLOW.gvr)
                ours = await finish(site, PYTORCH.gvr, "Succeeded")
                theirs = await finish(site, TENSORFLOW.gvr, "Succeeded")
                own = {PYTORCH.singular, NAME}
                assert own & await list_managers(site, "a-master-0") == {PYTORCH.singular}
                assert own & await list_managers(site, "a-ps-0") == {NAME}
                assert ours["status"]["completionTime"] and "retention" not in theirs["status"]

                # Only the companion knows the annotation.
                change = {"metadata": {"annotations": {TTL_ANNOTATION: "1"}}}
                await site.client.patch(TENSORFLOW.gvr, "a", PatchType.MERGE, change, site.namespace)

                async def is_gone() -> bool:
                    return not await list_names(site, TENSORFLOW.gvr)

                await wait(is_gone)
                # training-operator waits for no record: this is the job as it was last seen.
                short = make_job(TENSORFLOW, {"Worker": 1}, runPolicy={"ttlSecondsAfterFinished": 0})
                short["metadata"]["name"] = "short"
                await submit(site, short, TENSORFLOW.gvr)
                await wait(is_gone)

                async def are_recorded() -> bool:
                    return len(await asyncio.to_thread(read_records, tmp_path)) == 3

                await wait(are_recorded)
                assert await list_names(site, PYTORCH.gvr) == ["a"]

    asyncio.run(main())
    names = [("PyTorchJob", "a"), ("TFJob", "a"), ("TFJob", "short")]
    assert read_records(tmp_path) == dict.fromkeys(names, "Complete")
