"""What `promote` finds out about a job: at a server in memory that has fewer fields, other runtimes and quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jobs.compose.test_compose import CODE, load, make_request
from tests.unit.jobs.test_code_maps import Failing, on_a_server
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, LIMIT_RANGES, RESOURCE_QUOTAS, SECRETS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.cli.launch.manifests import SHAPE
from trainmaster.cli.promotion.findings import DIFFERENCE, OBSTACLE, UNCHECKED, compare_runtimes
from trainmaster.cli.promotion.target import Promotion, Target
from trainmaster.client.contract import Client
from trainmaster.jobs.compose.carried import carry
from trainmaster.jobs.compose.trainjob import SupportedFields, compose
from trainmaster.testing.cluster import Cluster

pytestmark = pytest.mark.unit

FIELDS = SupportedFields(SHAPE.manager, SHAPE.fields | {"runtimeRef", "trainer"})


def make(runtime: str = "torch-distributed", **fields: Any) -> Promotion:
    base = load(runtime)
    jobset = base["spec"]["template"]["spec"]  # with the defaults of the server here
    jobset["failurePolicy"]["restartStrategy"] = "Recreate"
    jobset["replicatedJobs"] = [{"groupName": "default", "replicas": 1, **job} for job in jobset["replicatedJobs"]]
    composed = compose(make_request(**fields), base, SHAPE)
    return Promotion(composed.trainjob, composed.runtime or base, "here the environment /env ran in its place")


async def check(client: Client, promotion: Promotion, shape: SupportedFields = FIELDS) -> list[tuple[str, str]]:
    """(level, text) without the fields that this machine carries out in another way."""
    await Target(client, shape, promotion).check()
    return [(one.level, one.text) for one in promotion.found if one.about != "field"]


IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime is pulled there; here the environment /env ran in its place"


def test_a_job_that_runs_there_as_here_differs_in_its_image_only() -> None:
    async def work(cluster: Cluster) -> None:
        job = make()
        assert await check(cluster.client, job) == [(DIFFERENCE, IMAGE)]
        assert job.is_possible
        texts = [one.text for one in job.found if one.about == "field"]
        want = "approximated here (images are not pulled, but mapped to Python environments)"
        assert any(text.endswith(f"containers[0].image: {want}") for text in texts)
        assert (await cluster.client.list(TRAIN_JOBS, "default")).items == [], "nothing is stored"

    on_a_server(work)


def test_without_trainjobs_there_is_nothing_else_to_say() -> None:
    async def work(cluster: Cluster) -> None:
        ((level, text),) = await check(cluster.client, make(), SupportedFields("", frozenset()))
        assert level == OBSTACLE and "there are no TrainJobs" in text

    on_a_server(work)


def test_fields_that_are_not_there_are_named() -> None:
    async def work(cluster: Cluster) -> None:
        job = make(ttl_seconds=5, packages=("numpy",))
        found = await check(cluster.client, job, SupportedFields("", frozenset({"runtimeRef", "trainer"})))
        assert found[0][0] == DIFFERENCE and found[0][1].startswith("spec.ttlSecondsAfterFinished is no field there")
        assert found[1][0] == OBSTACLE and found[1][1].startswith("TrainJobs have no field spec.runtimePatches there")

    on_a_server(work)


def test_a_runtime_that_is_missing_or_different_is_told() -> None:
    async def work(cluster: Cluster) -> None:
        ((level, text),) = await check(cluster.client, make("jax-distributed"))
        assert level == OBSTACLE
        assert text.startswith("there is no ClusterTrainingRuntime jax-distributed; there are: torch-distributed; ")
        theirs = load("jax-distributed")
        theirs["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] = 1
        node = theirs["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        node["containers"][0]["image"] = "jax:1"
        await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, theirs)
        assert await check(cluster.client, make("jax-distributed")) == [
            (DIFFERENCE, "spec.template.spec.failurePolicy.maxRestarts: here 6, there 1"),
            (
                DIFFERENCE,
                "spec.template.spec.replicatedJobs[node].template.spec.template.spec.containers[node].image: "
                "here nvcr.io/nvidia/jax:25.10-py3, there jax:1",
            ),
            (DIFFERENCE, "jax:1 is pulled there; here the environment /env ran in its place"),
        ]

    on_a_server(work)


def test_a_derived_runtime_is_sent_along_and_compared_with_its_base() -> None:
    async def work(cluster: Cluster) -> None:
        job = make(max_restarts=0)
        found = await check(cluster.client, job)
        assert job.new_runtime is not None and job.new_runtime["kind"] == "TrainingRuntime"
        assert (DIFFERENCE, "spec.template.spec.failurePolicy.maxRestarts: here 0, there 6") in found
        assert (UNCHECKED, "whether the server takes the job shows when its runtime exists there") in found
        assert job.is_possible
        assert job.composed.objects == (job.new_runtime, job.trainjob)
        await cluster.client.create(TRAIN_JOBS, make().trainjob, "default")
        taken = await check(cluster.client, make(max_restarts=0))
        assert (OBSTACLE, "there is a TrainJob job already: choose another name with --name") in taken

    on_a_server(work)


def test_many_differences_are_counted() -> None:
    runtime = load("torch-distributed")
    other = {**runtime, "spec": {**runtime["spec"], **{f"field{number}": 1 for number in range(11)}}}
    found = list(compare_runtimes(runtime, other))
    assert len(found) == 9
    assert found[-1].text == "and 3 more fields differ"


QUOTAS = [
    ({"requests.cpu": "3"}, {}, OBSTACLE, "needs 4 of requests.cpu, and the ResourceQuota q allows 3: ask for less"),
    ({"pods": "2"}, {"pods": "1"}, DIFFERENCE, "needs 2 of pods, and the ResourceQuota q has 1 of 2 left: it waits"),
    ({"limits.memory": "1Gi"}, {}, OBSTACLE, "the ResourceQuota q requires limits.memory for: node: set spec.trainer"),
    ({"count/trainjobs.trainer.kubeflow.org": "0"}, {}, OBSTACLE, "needs 1 of count/trainjobs.trainer.kubeflow.org"),
]


@pytest.mark.parametrize(("hard", "used", "level", "text"), QUOTAS, ids=["too much", "now", "unspecified", "count"])
def test_a_quota_is_compared_with_all_pods(hard: Object, used: Object, level: str, text: str) -> None:
    async def work(cluster: Cluster) -> None:
        await create(cluster.client, RESOURCE_QUOTAS, "ResourceQuota", {"spec": {"hard": hard}})
        if used:
            patch = {"status": {"hard": hard, "used": used}}
            stored = await cluster.client.get(RESOURCE_QUOTAS, "q", "default")
            await cluster.client.update(RESOURCE_QUOTAS, {**stored, **patch}, "default", subresource="status")
        found = await check(cluster.client, make(nodes=2, resources={"cpu": "2"}))
        assert next(one for one in found if text in one[1])[0] == level
        if "limits.memory" in hard:
            limit = {"type": "Container", "default": {"memory": "1Gi"}}
            await create(cluster.client, LIMIT_RANGES, "LimitRange", {"spec": {"limits": [limit]}})
            found = await check(cluster.client, make(nodes=2, resources={"cpu": "2"}))
            assert not [one for one in found if text in one[1]], "they get it from there"

    on_a_server(work)


async def create(client: Client, gvr: GVR, kind: str, fields: Object) -> Object:
    meta = {"name": "q", "namespace": "default"}
    return await client.create(gvr, {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}, "default")


def test_what_the_pods_need_must_exist() -> None:
    async def work(cluster: Cluster) -> None:
        found = await check(cluster.client, make(secrets=("keys",), max_restarts=None))
        assert (OBSTACLE, "its Pods need secrets keys, which does not exist in namespace default") in found
        await create(cluster.client, SECRETS, "Secret", {"metadata": {"name": "keys", "namespace": "default"}})
        found = await check(cluster.client, make(secrets=("keys",), max_restarts=None))
        assert OBSTACLE not in {level for level, _ in found}
        await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, load("deepspeed-distributed"))
        found = await check(cluster.client, make("deepspeed-distributed", nodes=2))
        assert OBSTACLE not in {level for level, _ in found}, "the controller makes its keys and its hostfile"

    on_a_server(work)


def test_what_the_server_refuses_is_told_in_its_words() -> None:
    async def work(cluster: Cluster) -> None:
        job = make()
        job.trainjob["spec"]["trainer"]["numNodes"] = 0
        found = await check(cluster.client, job)
        (text,) = [text for level, text in found if level == OBSTACLE]
        assert "spec.trainer.numNodes" in text

    on_a_server(work)


@pytest.mark.parametrize(
    ("gvr", "verb", "text"),
    [
        (CLUSTER_TRAINING_RUNTIMES, "get", "you may not read clustertrainingruntimes torch-distributed there"),
        (RESOURCE_QUOTAS, "list", "you may not read resourcequotas there"),
    ],
    ids=["runtimes", "quotas"],
)
def test_a_missing_right_is_told_and_the_rest_is_checked(gvr: GVR, verb: str, text: str) -> None:
    async def work(cluster: Cluster) -> None:
        client: Any = Failing(cluster.client, gvr, verb, StatusError(403, "Forbidden", "no"))
        job = make()
        assert await check(client, job) == [(UNCHECKED, text), (DIFFERENCE, IMAGE)] or text in str(job.found)
        assert job.is_possible

    on_a_server(work)


def test_its_code_is_sent_or_it_is_told_why_not() -> None:
    async def work(cluster: Cluster) -> None:
        job = make(code=CODE)
        job.config_map = carry(b"packed", "job-code-x", "job", "default", {}).config_map
        found = await check(cluster.client, job)
        assert found[0][1].startswith("its code is sent as the ConfigMap job-code-x, and unpacked into /workspace/code")
        assert job.trainjob["spec"]["trainer"]["command"] == ["sh"]
        assert job.is_possible
        entry = make(code=CODE, command=())
        entry.config_map = job.config_map
        ((level, text),) = await check(cluster.client, entry)
        assert level == OBSTACLE and "runs the entrypoint of its image" in text

    on_a_server(work)
