"""`explain` promises what would start a job that waits: here each promise is kept, in a whole system in one process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import make_trainjob
from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.resources import LIMIT_RANGES, NODES, PODS, RESOURCE_QUOTAS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.controllers.explain.changes import UnblockingChange
from trainmaster.controllers.explain.forecast import forecast
from trainmaster.controllers.explain.gathering import collect
from trainmaster.controllers.explain.reasons import JobExplanation, explain, list_waiting
from trainmaster.jobs.kinds import read_training_job
from trainmaster.kit.timeline import Now
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def make_job(name: str, nodes: int, **limits: str) -> Object:
    job = make_trainjob(name=name, nodes=nodes)
    amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in limits.items()}
    job["spec"]["trainer"]["resourcesPerNode"] = {"limits": amounts, "requests": dict(amounts)}
    return job


@asynccontextmanager
async def running(cpu: str = "8", memory: str = "16Gi") -> AsyncIterator[Plant]:
    """Pods that run until they are deleted, on a small node."""
    async with running_plant(ScriptedNode(lambda pod, run: -1)) as plant:
        offered = {"cpu": cpu, "memory": memory, "pods": "20", "nvidia.com/gpu": "4"}
        status = {"status": {"allocatable": offered}}
        await plant.client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
        yield plant


async def submit(plant: Plant, *jobs: Object) -> None:
    for job in jobs:
        await plant.client.create(read_training_job(job).gvr, job, "default")
        await plant.cluster.clock.sleep(3)


def ask(plant: Plant, name: str) -> JobExplanation:
    found = explain(plant.cluster.view, "default", name, Now(plant.cluster.clock.now()))
    assert found is not None
    return found


async def is_running(plant: Plant, name: str) -> bool:
    pods = [pod for pod in await plant.list_all(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    return bool(pods) and all(pod["spec"].get("nodeName") for pod in pods)


async def keep_promise(plant: Plant, job: Object, change: UnblockingChange) -> bool:
    """Deletes the job and submits it again with the change; whether it starts."""
    name = job["metadata"]["name"]
    await plant.client.delete(read_training_job(job).gvr, name, "default")
    await plant.cluster.clock.sleep(3)
    await submit(plant, merge.apply(job, dict(change.patch)))
    return await is_running(plant, name)


def test_a_queued_job_names_its_place_who_frees_it_and_the_smallest_change() -> None:
    async def main() -> None:
        async with running("4") as plant:
            await submit(plant, make_job("first", 1, cpu="3"), make_job("second", 2, cpu="1"))
            found = ask(plant, "second")
            assert (found.state, found.reason, found.position, found.queue) == ("Waiting", "Queued", 1, 1)
            assert found.sentence == (
                "waiting for 2 CPUs: 1 of 4 free; first in the queue; starts when default/first ends"
            )
            assert found.unblock == ("when default/first ends",)
            assert [change.text for change in found.changes] == [
                "with 1 node instead of 2",
                "with 0.5 CPUs instead of 1 on each node",
            ]
            assert list_waiting(plant.cluster.view) == [("default", "trainjob/second")]

    run_virtual(main(), limit=86_400)


def test_lists_fetched_from_a_server_give_the_same_answer_as_its_own_view() -> None:
    async def main() -> None:
        async with running("4") as plant:
            await submit(plant, make_job("first", 1, cpu="3"), *(make_job(f"job-{n}", 2, cpu="1") for n in range(2)))
            fetched = await collect(plant.client, "default")
            for name in ("first", "job-0", "job-1"):
                assert explain(fetched, "default", name, Now(plant.cluster.clock.now())) == ask(plant, name)

    run_virtual(main(), limit=86_400)


def test_those_further_behind_are_told_who_comes_first_and_may_be_asked_for_less() -> None:
    async def main() -> None:
        async with running("4") as plant:
            jobs = [make_job("first", 1, cpu="3"), *(make_job(f"next-{number}", 4, cpu="1") for number in range(3))]
            await submit(plant, *jobs)
            found = ask(plant, "next-2")
            assert (found.position, found.queue, found.ahead) == (3, 3, ("default/next-0", "default/next-1"))
            assert found.unblock == ("the 2 ahead of it come first; then more of those that run have to end",)
            now = Now(plant.cluster.clock.now())
            short = explain(plant.cluster.view, "default", "next-0", now, proposals=False)
            assert short is not None and short.sentence and not short.changes and not short.unblock

    run_virtual(main(), limit=86_400)


def make_v1_job(name: str, workers: int, **limits: str) -> Object:
    """A PyTorchJob whose master requests the same as each worker."""
    container = {"name": "pytorch", "image": "x", "resources": {"limits": dict(limits)}}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": workers}}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def test_a_v1_job_that_waits_gets_the_same_answers() -> None:
    async def main() -> None:
        async with running("4") as plant:
            first, second = make_v1_job("first", 1, cpu="1"), make_v1_job("second", 3, cpu="1")
            await submit(plant, first, second)
            found = ask(plant, "second")
            assert (found.kind, found.state, found.position) == ("PyTorchJob", "Waiting", 1)
            assert found.unblock == ("when default/first ends",)
            assert [(change.text, change.how) for change in found.changes] == [
                (
                    "with 0.5 CPUs instead of 1 in each Pod",
                    "delete it and submit it again with at most cpu: 500m in the resources of each replica of "
                    "spec.pytorchReplicaSpecs",
                ),
                (
                    "with 1 worker instead of 3",
                    "delete it and submit it again with spec.pytorchReplicaSpecs.Worker.replicas: 1",
                ),
            ]
            fetched = await collect(plant.client, "default")
            assert explain(fetched, "default", "second", Now(plant.cluster.clock.now())) == found
            for change in found.changes:
                assert await keep_promise(plant, second, change)

    run_virtual(main(), limit=86_400)


def test_a_v1_job_has_started_with_the_pods_that_it_needs() -> None:
    async def main() -> None:
        async with running("4") as plant:
            await submit(plant, make_v1_job("first", 1, cpu="1"))
            job = make_v1_job("second", 3, cpu="1")
            job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}, "suspend": True}
            await submit(plant, job)
            assert ask(plant, "second").unblock[1] == "it would start at once"
            wanted = {**job, "metadata": {**job["metadata"], "name": "third"}}
            for least, state in ((2, "now"), (3, "later")):
                wanted["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = least
                found = forecast(plant.cluster.view, wanted, Now(plant.cluster.clock.now()))
                assert found is not None and found.state == state

    run_virtual(main(), limit=86_400)


def test_a_v1_job_that_can_never_start_names_every_obstacle() -> None:
    async def main() -> None:
        async with running("4") as plant:
            job = make_v1_job("big", 1, cpu="3")
            worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
            worker["nodeSelector"] = {"gpu": "h100"}
            await submit(plant, job)
            found = ask(plant, "big")
            assert found.sentence.startswith("the job cannot start for 2 reasons: (1) the job asks for 6 CPUs")
            (change,) = found.changes
            assert change.text.startswith("with 2 CPUs instead of 3 in each Pod, ")
            await plant.client.patch(NODES, "local", PatchType.MERGE, {"metadata": {"labels": {"gpu": "h100"}}})
            assert await keep_promise(plant, job, change)

    run_virtual(main(), limit=86_400)


def test_an_elastic_job_is_not_told_to_take_fewer_workers_than_it_accepts() -> None:
    async def main() -> None:
        async with running("4") as plant:
            job = make_v1_job("wide", 5, cpu="1")
            await submit(plant, job)
            assert [change.text for change in ask(plant, "wide").changes if change.kind == "nodes"]
            job["metadata"]["name"] = "elastic"
            job["spec"]["elasticPolicy"] = {"minReplicas": 4, "maxReplicas": 8}
            await submit(plant, job)
            assert not [change.text for change in ask(plant, "elastic").changes if change.kind == "nodes"]

    run_virtual(main(), limit=86_400)


def test_a_suspended_v1_job_is_told_whether_it_would_start() -> None:
    async def main() -> None:
        async with running("4") as plant:
            small, large = make_v1_job("small", 1, cpu="1"), make_v1_job("large", 4, cpu="1")
            for job in (small, large):
                job["spec"]["runPolicy"] = {"suspend": True}
            await submit(plant, small, large)
            assert ask(plant, "small").unblock[1] == "it would start at once"
            assert ask(plant, "large").unblock[1].startswith("it would wait in the queue")

    run_virtual(main(), limit=86_400)


async def play_changes(dice: random.Random) -> int:
    """Four jobs, of which some wait; takes one of the changes that are proposed to each. Returns how many."""
    jobs = []
    for number in range(4):
        limits = {"cpu": f"{dice.randint(2, 40) * 100}m", "memory": f"{dice.randint(1, 6)}Gi"}
        if dice.random() < 0.4:
            limits["gpu"] = str(dice.randint(1, 3))
        if dice.random() < 0.3:
            amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in limits.items()}
            jobs.append(make_v1_job(f"job-{number}", dice.randint(1, 4), **amounts))
        else:
            jobs.append(make_job(f"job-{number}", dice.randint(1, 5), **limits))
    kept = 0
    async with running() as plant:
        await submit(plant, *jobs)
        for job in jobs:
            name = job["metadata"]["name"]
            if await is_running(plant, name):
                continue
            changes = [change for change in ask(plant, name).changes if change.patch]
            if changes:
                change = dice.choice(changes)
                assert await keep_promise(plant, job, change), (name, change)
                kept += 1
    return kept


def test_every_change_that_is_proposed_starts_the_job() -> None:
    kept = [run_virtual(play_changes(random.Random(seed)), limit=86_400) for seed in range(12)]
    assert sum(kept) >= 6


async def play_release(dice: random.Random) -> bool:
    """Six jobs; ends one of those whose end is said to start one that waits. False: nobody is named."""
    async with running() as plant:
        for number in range(6):
            await submit(plant, make_job(f"job-{number}", dice.randint(1, 4), cpu=f"{dice.randint(2, 30) * 100}m"))
        waiting = [reference.removeprefix("trainjob/") for _, reference in list_waiting(plant.cluster.view)]
        named = [(name, text) for name in waiting for text in ask(plant, name).unblock if text.startswith("when ")]
        if not named:
            return False
        name, text = dice.choice(named)
        await plant.client.delete(TRAIN_JOBS, text.split()[1].removeprefix("default/"), "default")
        await plant.cluster.clock.sleep(3)
        assert await is_running(plant, name), (name, text)
        return True


def test_the_end_of_whoever_is_named_starts_the_job() -> None:
    named = [run_virtual(play_release(random.Random(seed)), limit=86_400) for seed in range(10)]
    assert sum(named) >= 4


@pytest.mark.parametrize("seed", range(4))
def test_one_node_more_than_proposed_is_too_many(seed: int) -> None:
    """The smallest change: less would not do."""

    async def main() -> None:
        dice = random.Random(seed)
        async with running() as plant:
            job = make_job("large", 6, cpu=f"{dice.randint(3, 20) * 100}m")
            await submit(plant, make_job("first", 1, cpu=f"{dice.randint(60, 74) * 100}m"), job)
            change = next((change for change in ask(plant, "large").changes if change.kind == "nodes"), None)
            if change is None:
                wanted = {"spec": {"trainer": {"numNodes": 1}}}
                assert not await keep_promise(plant, job, UnblockingChange("nodes", "", "", wanted))
                return
            more = {"spec": {"trainer": {"numNodes": change.patch["spec"]["trainer"]["numNodes"] + 1}}}
            assert not await keep_promise(plant, job, UnblockingChange("nodes", "", "", more))

    run_virtual(main(), limit=86_400)


@pytest.mark.parametrize("runtime", ["deepspeed-distributed", "jax-distributed", "plain"])
def test_what_is_proposed_holds_for_other_runtimes_too(runtime: str) -> None:
    """With MPI a launcher is among the Pods, and may be a node itself."""

    async def main() -> None:
        async with running("8") as plant:
            job = make_job("mine", 4, cpu="1")
            job["spec"]["runtimeRef"]["name"] = runtime
            await submit(plant, make_job("first", 1, cpu="5500m"), job)
            changes = ask(plant, "mine").changes
            assert {change.kind for change in changes} >= {"nodes"}
            nodes = next(change for change in changes if change.kind == "nodes")
            assert await keep_promise(plant, job, nodes), nodes
            more = {"spec": {"trainer": {"numNodes": nodes.patch["spec"]["trainer"]["numNodes"] + 1}}}
            assert not await keep_promise(plant, job, UnblockingChange("nodes", "", "", more))

    run_virtual(main(), limit=86_400)


def test_gpus_are_proposed_by_the_piece() -> None:
    async def main() -> None:
        async with running() as plant:
            job = make_job("second", 1, gpu="2")
            await submit(plant, make_job("first", 1, gpu="3"), job)
            found = ask(plant, "second")
            assert found.sentence.startswith("waiting for 2 GPUs: 1 of 4 free")
            assert [change.text for change in found.changes] == ["with 1 GPU instead of 2 on each node"]
            assert await keep_promise(plant, job, found.changes[0])

    run_virtual(main(), limit=86_400)


def test_where_a_limit_range_changes_pods_nothing_is_promised() -> None:
    async def main() -> None:
        async with running("4") as plant:
            limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}
            meta = {"name": "l", "namespace": "default"}
            await plant.client.create(
                LIMIT_RANGES, {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": limits}, "default"
            )
            await submit(plant, make_job("first", 1, cpu="3"), make_job("second", 2, cpu="1"))
            found = ask(plant, "second")
            assert found.position == 1 and found.unblock == ("when default/first ends",) and found.changes == ()

    run_virtual(main(), limit=86_400)


@pytest.mark.parametrize("hard", [{"pods": "2"}, {"requests.cpu": "2500m"}, {"limits.cpu": "3"}])
def test_a_job_over_its_quota_is_told_how_many_nodes_fit(hard: dict[str, str]) -> None:
    async def main() -> None:
        async with running() as plant:
            meta = {"name": "q", "namespace": "default"}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
            await plant.client.create(RESOURCE_QUOTAS, quota, "default")
            job = make_job("large", 5, cpu="1")
            await submit(plant, job)
            found = ask(plant, "large")
            assert "exceeded quota: q" in found.sentence
            (change,) = found.changes
            assert await keep_promise(plant, job, change), change
            more = {"spec": {"trainer": {"numNodes": change.patch["spec"]["trainer"]["numNodes"] + 1}}}
            assert not await keep_promise(plant, job, UnblockingChange("nodes", "", "", more))

    run_virtual(main(), limit=86_400)


def test_a_job_too_large_for_the_machine_is_told_what_fits() -> None:
    async def main() -> None:
        async with running("4") as plant:
            job = make_job("huge", 8, cpu="1")
            await submit(plant, job)
            found = ask(plant, "huge")
            assert found.reason == "Unschedulable"
            assert found.sentence == "the job asks for 8 CPUs, node local has 4: ask for less, or use fewer nodes"
            assert found.position == 0
            assert await keep_promise(plant, job, found.changes[0])

    run_virtual(main(), limit=86_400)


def test_overcommitted_cpus_let_more_run_and_widen_no_quota() -> None:
    async def main() -> None:
        async with running("2") as plant:

            async def offer(cpu: str) -> None:
                status = {"status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": cpu}}}
                await plant.client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
                await plant.cluster.clock.sleep(3)

            await offer("2")
            await submit(plant, make_job("three", 3, cpu="1"))
            found = ask(plant, "three")
            assert [change.kind for change in found.changes] == ["nodes", "resources", "node"]
            assert found.changes[-1].text == "if jobs shared the 2 CPUs of node local, and ran slower"
            assert found.changes[-1].how.startswith("set overcommit = 1.5 under [node]")
            await offer("3")
            assert await is_running(plant, "three")
            text = "jobs on node local share its 2 CPUs: together they may request 3 (setting node.overcommit)"
            assert text in ask(plant, "three").facts
            await offer("8")
            meta = {"name": "q", "namespace": "default"}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"cpu": "4"}}}
            await plant.client.create(RESOURCE_QUOTAS, quota, "default")
            await submit(plant, make_job("more", 2, cpu="1"))
            assert "exceeded quota: q" in ask(plant, "more").sentence

    run_virtual(main(), limit=86_400)


@pytest.mark.parametrize("obstacle", ["cordon", "taint", "selector"])
def test_what_is_proposed_for_the_node_lets_the_job_start_in_its_place(obstacle: str) -> None:
    async def main() -> None:
        async with running() as plant:
            job = make_job("picky", 2, cpu="1")
            if obstacle == "cordon":
                await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": True}})
            elif obstacle == "taint":
                taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
                await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"taints": [taint]}})
            else:
                target = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"disk": "ssd"}}}
                job["spec"]["podTemplateOverrides"] = [target]
            await submit(plant, job)
            found = ask(plant, "picky")
            assert [change.kind for change in found.changes] == ["node"], found
            wanted = {
                "cordon": ("kubectl uncordon local", {"spec": {"unschedulable": None}}),
                "taint": ("kubectl taint nodes local team:NoSchedule-", {"spec": {"taints": None}}),
                "selector": (
                    "kubectl label node local --overwrite disk=ssd",
                    {"metadata": {"labels": {"disk": "ssd"}}},
                ),
            }[obstacle]
            assert found.changes[0].how == wanted[0]
            assert not await is_running(plant, "picky")
            await plant.client.patch(NODES, "local", PatchType.MERGE, wanted[1])
            await plant.cluster.clock.sleep(3)
            assert await is_running(plant, "picky")

    run_virtual(main(), limit=86_400)


def test_all_obstacles_are_named_in_the_order_in_which_to_remove_them() -> None:
    async def main() -> None:
        async with running("4") as plant:
            await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": True}})
            job = make_job("picky", 2, cpu="4", gpu="1")
            target = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"disk": "ssd"}}}
            job["spec"]["podTemplateOverrides"] = [target]
            await submit(plant, job)
            found = ask(plant, "picky")
            assert found.sentence == (
                "the job cannot start for 3 reasons: (1) the job asks for 8 CPUs, node local has 4: ask for less, or "
                "use fewer nodes; (2) node local takes no new Pods; "
                "(3) no node has the label disk=ssd (node local has no label disk)"
            )
            label = "kubectl label node local --overwrite disk=ssd"
            assert found.unblock == (
                "1. ask for at most 4 CPUs in total",
                "2. kubectl uncordon local",
                f"3. {label}",
            )
            change = found.changes[0]
            assert change.text == (
                "with 1 node instead of 2, once node local takes Pods again, with the label disk=ssd on node local"
            )
            assert change.how.startswith(f"first kubectl uncordon local && {label}; then delete it and submit it again")
            patch = {"spec": {"unschedulable": None}, "metadata": {"labels": {"disk": "ssd"}}}
            await plant.client.patch(NODES, "local", PatchType.MERGE, patch)
            assert await keep_promise(plant, job, change)

    run_virtual(main(), limit=86_400)


def test_what_several_changes_of_the_node_would_start_is_one_proposal() -> None:
    async def main() -> None:
        async with running("4") as plant:
            await submit(plant, make_job("first", 1, cpu="3"))
            await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": True}})
            jobs = make_job("picky", 1, cpu="1"), make_job("large", 1, cpu="2")
            for job in jobs:
                target = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"disk": "ssd"}}}
                job["spec"]["podTemplateOverrides"] = [target]
            await submit(plant, *jobs)
            (change,) = ask(plant, "picky").changes
            assert change.how == "kubectl uncordon local && kubectl label node local --overwrite disk=ssd"
            found = ask(plant, "large")
            assert not found.changes
            assert found.unblock[-1] == (
                "3. then it waits for its turn: waiting for 2 CPUs: 0 of 4 free; first in the queue; "
                "starts when default/first ends"
            )
            patch = {"spec": {"unschedulable": None}, "metadata": {"labels": {"disk": "ssd"}}}
            await plant.client.patch(NODES, "local", PatchType.MERGE, patch)
            await plant.cluster.clock.sleep(3)
            assert await is_running(plant, "picky") and not await is_running(plant, "large")

    run_virtual(main(), limit=86_400)


def test_a_suspended_job_says_whether_resuming_starts_it() -> None:
    async def main() -> None:
        async with running("4") as plant:
            first, second = make_job("first", 1, cpu="3"), make_job("second", 2, cpu="1")
            second["spec"]["suspend"] = True
            await submit(plant, first, second)
            found = ask(plant, "second")
            assert found.state == "Suspended"
            assert found.unblock[0] == "trainmaster resume second -n default"
            assert "no room" in found.unblock[1]
            await plant.client.delete(TRAIN_JOBS, "first", "default")
            await plant.cluster.clock.sleep(3)
            assert ask(plant, "second").unblock[1] == "it would start at once"
            await plant.client.patch(TRAIN_JOBS, "second", PatchType.MERGE, {"spec": {"suspend": False}}, "default")
            await plant.cluster.clock.sleep(3)
            assert await is_running(plant, "second")

    run_virtual(main(), limit=86_400)


def test_running_failed_and_complete_jobs_are_explained_too() -> None:
    def script(pod: Object, run: int) -> int:
        return {"bad": 3, "good": 0}.get(pod["metadata"]["name"].split("-")[0], -1)

    async def main() -> None:
        async with running_plant(ScriptedNode(script)) as plant:
            jobs = {name: make_job(name, 1, cpu="1") for name in ("good", "bad", "busy")}
            jobs["busy"]["spec"]["activeDeadlineSeconds"] = 7200
            jobs["good"]["spec"]["ttlSecondsAfterFinished"] = 7200
            await submit(plant, *jobs.values())
            await plant.cluster.clock.sleep(3600)
            good, bad, busy = (ask(plant, name) for name in ("good", "bad", "busy"))
            assert (good.state, bad.state, busy.state) == ("Complete", "Failed", "Running")
            assert good.sentence.startswith("ended well ")
            assert "by TrainJob spec.ttlSecondsAfterFinished" in good.facts[0]
            assert ": rank 0: exit code 3: ValueError: run " in bad.sentence
            assert bad.facts == ("kept until somebody deletes it: nobody set a TTL",)
            assert busy.sentence.endswith("1 Pod runs")
            assert any(fact.startswith("stopped by its deadline in ") for fact in busy.facts)

    run_virtual(main(), limit=86_400)
