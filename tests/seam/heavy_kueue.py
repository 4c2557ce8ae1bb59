"""TrainJobs in queues of the real Kueue, which starts, preempts and resumes them, with the operator's webhooks.

make heavy
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from tests.flow.stage import is_finished
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.seam.kueue_site import KueueSite, KueueStage, read_example, running_site
from tools.toolbox import Toolbox
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.operator.manifests import build_manifests

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

_NEVER_MS = 3_600_000
MANAGER = "kueue.x-k8s.io/manager"


@pytest.fixture(scope="module")
def kueue_cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "kwok", "kueue"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    parts = Parts(jobset=True, kueue=True, nodes=4, complete_ms=_NEVER_MS, unlimited=True)
    with KubeCluster(parts, toolbox=toolbox, manifests=json.dumps(build_manifests())) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(kueue_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueSite]:
    with running_site(kueue_cluster, tmp_path_factory.mktemp("kueue") / "operator.log") as made:
        yield made


def is_suspended(job: Object) -> bool:
    return is_true(list_conditions(job), "Suspended")


def count_active(job: Object) -> int:
    return sum(step.get("active", 0) for step in (job.get("status") or {}).get("jobsStatus") or ())


async def is_gone(stage: KueueStage, name: str) -> bool:
    try:
        await stage.get(name)
    except NotFound:
        return True
    return False


def test_a_job_with_a_ttl_runs_is_preempted_resumes_ends_and_is_deleted(site: KueueSite) -> None:
    async def test(stage: KueueStage) -> None:
        nightly, urgent = read_example("trainjob.yaml")
        nightly["spec"]["activeDeadlineSeconds"] = 3600
        await stage.client.create(TRAIN_JOBS, nightly, stage.namespace)
        await stage.wait_for_pods("nightly", 2)
        await stage.client.create(TRAIN_JOBS, urgent, stage.namespace)
        preempted = await stage.wait_for(TRAIN_JOBS, "nightly", is_suspended)
        assert preempted["spec"]["ttlSecondsAfterFinished"] == 5, "Kueue has written it twice"
        await stage.wait_for_pods("urgent", 1)
        await stage.wait_for(TRAIN_JOBS, "nightly", lambda job: not count_active(job))
        await stage.end_pods("urgent")
        await stage.wait_for(TRAIN_JOBS, "urgent", is_finished)
        await stage.wait_for_pods("nightly", 2)
        await stage.end_pods("nightly")
        done = await stage.wait_for(TRAIN_JOBS, "nightly", is_finished)
        assert is_true(list_conditions(done), "Complete")
        assert done["spec"]["ttlSecondsAfterFinished"] == 5 and done["spec"]["activeDeadlineSeconds"] == 3600
        assert done["metadata"]["annotations"][TTL_ANNOTATION] == "5"
        assert done["metadata"]["annotations"][DEADLINE_ANNOTATION] == "3600"
        await stage.eventually(lambda: is_gone(stage, "nightly"))
        await stage.client.delete(TRAIN_JOBS, "urgent", stage.namespace)

    site.play(test)


def test_two_jobs_run_one_after_the_other_when_the_quota_fits_one(site: KueueSite) -> None:
    async def test(stage: KueueStage) -> None:
        await stage.queue("one", cpu="2")
        await stage.wait_for_pods("one", 2)
        await stage.queue("two", cpu="2")
        waiting = await stage.wait_for(TRAIN_JOBS, "two", is_suspended)
        assert waiting["spec"]["suspend"] and not await stage.list_pods("two")
        await stage.end_pods("one")
        await stage.wait_for_pods("two", 2)
        assert is_finished(await stage.get("one"))
        await stage.end_pods("two")
        await stage.wait_for(TRAIN_JOBS, "two", is_finished)
        for name in ("one", "two"):
            await stage.client.delete(TRAIN_JOBS, name, stage.namespace)

    site.play(test)


def test_what_has_ended_frees_its_quota_while_the_rest_runs(site: KueueSite) -> None:
    """Kueue reads it from `status.jobsStatus`."""

    async def test(stage: KueueStage) -> None:
        await stage.client.create(TRAINING_RUNTIMES, make_two_steps(), stage.namespace)
        await stage.queue("steps", cpu="1", nodes=1, runtimeRef={"name": "two-steps", "kind": "TrainingRuntime"})
        await stage.wait_for_pods("steps", 2)
        await stage.end_pods("steps", job="helper")

        async def is_reclaimed() -> bool:
            workload = await stage.find_workload("steps")
            return bool(workload and (workload["status"].get("reclaimablePods") == [{"name": "helper", "count": 1}]))

        await stage.eventually(is_reclaimed)
        await stage.end_pods("steps")
        await stage.wait_for(TRAIN_JOBS, "steps", is_finished)
        await stage.client.delete(TRAIN_JOBS, "steps", stage.namespace)

    site.play(test)


def run_command(site: KueueSite, *words: str, want: int = exits.OK) -> str:
    out, err = io.StringIO(), io.StringIO()
    context = CommandContext({}, out, err)
    code = main([*words, "-n", site.namespace, "--kubeconfig", str(site.cluster.kubeconfig)], context)
    assert code == want, err.getvalue()
    return out.getvalue() + err.getvalue()


def test_commands_say_why_jobs_wait_in_their_queues_and_who_took_their_place(site: KueueSite) -> None:
    nightly, urgent = read_example("trainjob.yaml")

    async def fill(stage: KueueStage) -> None:
        await stage.client.create(TRAIN_JOBS, nightly, stage.namespace)
        await stage.wait_for_pods("nightly", 2)
        for name, cpu, queue in (("second", "2", "team"), ("third", "1", "team"), ("lost", "2", "nowhere")):
            await stage.queue(name, cpu=cpu, queue=queue)
            await stage.wait_for(TRAIN_JOBS, name, is_suspended)

            async def is_judged(name: str = name) -> bool:
                found = await stage.find_workload(name)
                return found is not None and "QuotaReserved" in json.dumps(found.get("status", {}))

            await stage.eventually(is_judged)

    site.play(fill)
    rows = {line.split()[0]: line for line in run_command(site, "list").splitlines()}
    assert "Waiting" in rows["second"] and "Queued: in LocalQueue team: couldn't assign flavors" in rows["second"]
    assert "Queued: in LocalQueue nowhere: Kueue cannot admit it" in rows["lost"] and "Suspended" not in str(rows)
    assert "Waiting" not in rows["nightly"]
    text = run_command(site, "explain", "third")
    assert "waits in LocalQueue team of ClusterQueue training: " in text and "insufficient unused quota for cpu" in text
    # From Kueue's visibility API. Which is first of those that came in the same second is decided by their uids.
    last = text if "2 of 2" in text else run_command(site, "explain", "second")
    assert "2 of 2, behind kueue-team/" in last
    assert "`kubectl describe clusterqueue training --kubeconfig" in text and "trainmaster resume" not in text
    assert "LocalQueue nowhere doesn't exist" in run_command(site, "explain"), "all that wait"

    text = run_command(site, "resume", "second", want=exits.FAILED)
    assert "second waits in LocalQueue team" in text and "Kueue resumes it by itself" in text

    async def preempt(stage: KueueStage) -> None:
        await stage.client.create(TRAIN_JOBS, urgent, stage.namespace)
        await stage.wait_for(TRAIN_JOBS, "nightly", is_suspended)
        await stage.wait_for_pods("urgent", 1)

    site.play(preempt)
    text = run_command(site, "describe", "nightly")
    assert "by kueue-team/urgent, because of prioritization in the ClusterQueue" in text and "QuotaReserved" in text
    assert "nightly: Waiting" in text and "resume" not in text.partition("Next")[2]

    async def clean(stage: KueueStage) -> None:
        for name in ("nightly", "urgent", "second", "third", "lost"):
            await stage.client.delete(TRAIN_JOBS, name, stage.namespace)

    site.play(clean)


def make_two_steps() -> Object:
    def job(name: str, labels: dict[str, str]) -> Object:
        container = {"name": "node", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        template = {"spec": {"template": {"spec": {"containers": [container]}}}}
        return {"name": name, "template": {"metadata": {"labels": labels}, **template}}

    jobs = [job("helper", {}), job("node", {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"})]
    return {
        "apiVersion": TRAINING_RUNTIMES.api_version,
        "kind": "TrainingRuntime",
        "metadata": {"name": "two-steps"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def test_older_overrides_are_refused_with_the_patch_that_is_then_accepted(site: KueueSite) -> None:
    async def test(stage: KueueStage) -> None:
        override = {"targetJobs": [{"name": "node"}], "metadata": {"labels": {"team": "vision"}}}
        with pytest.raises(StatusError) as refused:
            await stage.queue("older", podTemplateOverrides=[override])
        patch = json.loads(refused.value.message.partition("spec.runtimePatches: ")[2])
        await stage.queue("older", runtimePatches=[patch])
        pods = await stage.wait_for_pods("older", 2)
        assert {pod["metadata"]["labels"]["team"] for pod in pods} == {"vision"}
        assert {pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] for pod in pods} == {"node"}, "what Kueue adds"
        await stage.client.delete(TRAIN_JOBS, "older", stage.namespace)

    site.play(test)


def test_all_pods_run_in_the_block_that_their_topology_asks_for(site: KueueSite) -> None:
    async def test(stage: KueueStage) -> None:
        site.cluster.apply(TOPOLOGY)
        template = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "example.com/block"}}}
        job = {"name": "node", "template": {"spec": {"template": template}}}
        patch = {"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
        # So large that a node has room for one of them.
        submitted = await stage.queue("near", cpu="200", runtimePatches=[patch], queue="racks")
        assert submitted["spec"]["suspend"]
        pods = await stage.wait_for_pods("near", 2)
        nodes = {pod["spec"]["nodeName"] for pod in pods}
        assert nodes in ({"node-0", "node-1"}, {"node-2", "node-3"})
        assert not any(pod["spec"].get("schedulingGates") for pod in pods)
        assert all("kueue.x-k8s.io/workload" in pod["metadata"]["annotations"] for pod in pods)
        await stage.client.delete(TRAIN_JOBS, "near", stage.namespace)

    for number in range(4):
        site.cluster.kubectl("label", "node", f"node-{number}", f"example.com/block=block-{number // 2}", "racks=yes")
    site.play(test)


TOPOLOGY = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: example.com/block}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: racks}
spec: {topologyName: racks, nodeLabels: {racks: "yes"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: racks}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors: [{name: racks, resources: [{name: cpu, nominalQuota: 1024}, {name: memory, nominalQuota: 1Ti}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: racks, namespace: kueue-team}
spec: {clusterQueue: racks}
"""
