"""What frameworks add beyond upstream's integration lines: derivations, recipes, targets, gangs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.trainjob.stage import (
    Stage,
    make_job,
    make_jobs,
    make_patch,
    make_runtime,
    make_trainjob,
    play,
)
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, SECRETS, TRAIN_JOBS, VOLCANO_POD_GROUPS
from trainmaster.api.status import StatusError
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.frameworks.keys import encode_z85, make_curve_keys, make_ssh_keys

pytestmark = pytest.mark.unit

TORCH = {"numNodes": 1, "torch": {}}


def read_env(container: Object) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container.get("env") or ()}


def make_sized(**resources: Any) -> list[Object]:
    jobs = make_jobs()
    jobs[2]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    return jobs


@pytest.mark.parametrize(
    ("runtime_resources", "trainer", "want"),
    [
        pytest.param({"limits": {"cpu": "4"}}, {}, "4", id="the CPU limit"),
        pytest.param({}, {}, "1", id="no CPU is one process"),
        pytest.param({"limits": {"cpu": "2500m"}}, {}, "3", id="millicores round up"),
        pytest.param({"requests": {"cpu": "3"}, "limits": {"cpu": "8"}}, {}, "3", id="the request before the limit"),
        pytest.param({"limits": {"nvidia.com/gpu": "2"}}, {}, "auto", id="GPUs are torchrun's to count"),
        pytest.param({"limits": {"nvidia.com/gpu": "2"}}, {"numProcPerNode": 5}, "5", id="a number is kept"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": "2"}},
            {"resourcesPerNode": {"limits": {"memory": "8Gi"}}},
            "auto",
            id="what the TrainJob does not name stays the runtime's",
        ),
    ],
)
def test_processes_per_node(runtime_resources: Object, trainer: Object, want: str) -> None:
    async def test(stage: Stage) -> None:
        runtime = make_runtime(TORCH, jobs=make_sized(**runtime_resources))
        await stage.start(runtime, make_trainjob(trainer=trainer))
        assert read_env(stage.container())["PET_NPROC_PER_NODE"] == want

    play(test)


def make_targets(*targets: tuple[str, list[str]]) -> Object:
    entries = [{"jobName": job, "containerNames": names} for job, names in targets]
    return {"numNodes": 2, "torch": {"envInjection": {"targets": entries}}}


def test_listed_containers_get_the_variables_too_and_others_do_not() -> None:
    async def test(stage: Stage) -> None:
        side, other = {"name": "side", "image": "s:1"}, {"name": "other", "image": "o:1"}
        prepare = {"name": "prepare", "image": "p:1"}
        jobs = make_jobs(node={"initContainers": [prepare]})
        jobs[2]["template"]["spec"]["template"]["spec"]["containers"] += [side, other]
        policy = make_targets(("node", ["side", "prepare"]), ("model-initializer", ["model-initializer"]))
        await stage.start(make_runtime(policy, jobs=jobs), make_trainjob())
        names = ["PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"]
        assert list(read_env(stage.container("node", "side"))) == names
        assert list(read_env(stage.pod()["initContainers"][0])) == names
        assert list(read_env(stage.container("model-initializer"))) == names
        assert read_env(stage.container("node", "other")) == {}

    play(test)


@pytest.mark.parametrize("target", [("node", ["nobody"]), ("nowhere", ["side"])])
def test_a_target_that_does_not_exist_is_refused(target: tuple[str, list[str]]) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_runtime(make_runtime(make_targets(target)))
        with pytest.raises(StatusError) as caught:
            await stage.create(TRAIN_JOBS, make_trainjob())
        want = f'envInjection target podSet "{target[0]}" container "{target[1][0]}" not found in runtime template'
        assert want in caught.value.message

    play(test)


def test_an_elastic_policy_is_torchruns_own() -> None:
    async def test(stage: Stage) -> None:
        policy = {"torch": {"elasticPolicy": {"minNodes": 2, "maxNodes": 5, "maxRestarts": 3}}}
        await stage.start(make_runtime(policy), make_trainjob())
        env = read_env(stage.container())
        assert (env["PET_NNODES"], env["PET_MAX_RESTARTS"], env["PET_RDZV_BACKEND"]) == ("2:5", "3", "c10d")
        assert env["PET_RDZV_ENDPOINT"] == "alpha-node-0-0.alpha:29500"
        assert stage.size() == (5, 5)

    play(test)


COMMAND = ["tune", "run", "--config", "x", "dataset.source=parquet", "output_dir=/o", "tokenizer.path=/t"]
ONE_GPU = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}
TWO_GPUS = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}}
LORA = ["model.lora_attn_modules=[q_proj]"]
QLORA = [*LORA, "model.quantize_base=True"]
DORA = [*QLORA, "model.use_dora=True"]


@pytest.mark.parametrize(
    ("trainer", "want"),
    [
        pytest.param(ONE_GPU, ["full_finetune_single_device", "llama3_2/1B_full_single_device"], id="one device"),
        pytest.param(
            {**ONE_GPU, "args": LORA}, ["lora_finetune_single_device", "llama3_2/1B_lora_single_device"], id="LoRA"
        ),
        pytest.param(
            {**ONE_GPU, "args": QLORA}, ["lora_finetune_single_device", "llama3_2/1B_qlora_single_device"], id="QLoRA"
        ),
        pytest.param(
            {**ONE_GPU, "args": DORA}, ["lora_finetune_single_device", "llama3_2/1B_lora_single_device"], id="DoRA"
        ),
        pytest.param(TWO_GPUS, ["full_finetune_distributed", "llama3_2/1B_full"], id="two devices"),
        pytest.param({**TWO_GPUS, "args": LORA}, ["lora_finetune_distributed", "llama3_2/1B_lora"], id="LoRA on two"),
    ],
)
def test_the_recipe_of_torchtune(trainer: Object, want: list[str]) -> None:
    async def test(stage: Stage) -> None:
        jobs = make_jobs()
        jobs[2]["template"]["spec"]["template"]["spec"]["containers"][0]["command"] = COMMAND
        name = "torchtune-llama3.2-1b"
        runtime = make_runtime(TORCH, jobs=jobs, name=name)
        whole = {"command": ["tune", "run"], **trainer}
        await stage.start(runtime, make_trainjob(runtime=name, trainer=whole))
        meeting = ["--rdzv_endpoint=alpha-node-0-0.alpha:29500"] if "distributed" in want[0] else []
        recipe, config = want
        kept = ["output_dir=/o", "tokenizer.path=/t"]
        assert stage.container()["command"] == ["tune", "run", *meeting, recipe, "--config", config, *kept]
        assert stage.container().get("args", []) == trainer.get("args", [])
        assert "PET_MASTER_ADDR" not in read_env(stage.container())

    play(test)


@pytest.mark.parametrize(
    ("nodes", "as_node", "want"),
    [(1, False, (1, 1)), (3, False, (3, 1)), (1, True, (1, 1)), (3, True, (2, 1)), (None, True, (3, 1))],
)
def test_the_nodes_of_an_mpi_job(nodes: int | None, as_node: bool, want: tuple[int, int]) -> None:
    async def test(stage: Stage) -> None:
        policy = {"numNodes": 4, "mpi": {"runLauncherAsNode": as_node}}
        jobs = [make_job("launcher", label="trainer"), make_job("node")]
        trainer = {"numNodes": nodes} if nodes else {}
        await stage.start(make_runtime(policy, jobs=jobs), make_trainjob(trainer=trainer))
        assert (stage.size("node")[0], stage.size("launcher")[0]) == want
        lines = stage.get(CONFIG_MAPS, "alpha-mpi-hostfile")["data"]["hostfile"].splitlines()
        assert len(lines) == want[0] + as_node
        assert lines[0].startswith("alpha-launcher-0-0.alpha " if as_node else "alpha-node-0-0.alpha ")

    play(test)


def test_keys_are_made_once_and_hosts_are_put_right() -> None:
    made = []

    def make_keys() -> Any:
        made.append(1)
        return make_ssh_keys()

    async def test(stage: Stage) -> None:
        policy = {"numNodes": 1, "mpi": {}}
        jobs = [make_job("launcher", label="trainer"), make_job("node")]
        await stage.start(make_runtime(policy, jobs=jobs), make_trainjob())
        before = stage.get(SECRETS, "alpha-mpi-ssh-auth")
        await stage.patch(CONFIG_MAPS, {"data": {"hostfile": "wrong"}}, "alpha-mpi-hostfile")
        await stage.play()
        assert stage.get(CONFIG_MAPS, "alpha-mpi-hostfile")["data"]["hostfile"] == "alpha-node-0-0.alpha slots=1\n"
        assert stage.get(SECRETS, "alpha-mpi-ssh-auth") == before
        assert made == [1]

    play(test, context=FrameworkContext(on_cluster=True, make_ssh_keys=make_keys))


def test_a_volcano_group_has_queue_priority_and_topology() -> None:
    async def test(stage: Stage) -> None:
        topology = {"mode": "soft", "highestTierAllowed": 2}
        runtime = make_runtime(
            TORCH,
            jobs=make_jobs(node={"priorityClassName": "system-node-critical"}),
            podGroupPolicy={"volcano": {"networkTopology": topology}},
        )
        runtime["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "runtime"}}
        own = make_patch(metadata={"annotations": {"scheduling.volcano.sh/queue-name": "own"}})
        await stage.start(runtime, make_trainjob(runtimePatches=[own]))
        spec = stage.get(VOLCANO_POD_GROUPS)["spec"]
        assert (spec["queue"], spec["priorityClassName"]) == ("own", "system-node-critical")
        assert spec["networkTopology"] == topology
        assert (spec["minMember"], spec["minResources"]) == (3, {"cpu": "3", "memory": "12Gi"})
        annotations = stage.job()["template"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {"scheduling.k8s.io/group-name": "alpha"}

    play(test)


@pytest.mark.parametrize(
    ("annotation", "priority", "want"),
    [
        pytest.param("", "", "Volcano queue name must not be empty", id="queue"),
        pytest.param("q", "nobody", 'PriorityClass "nobody" doesn\'t exist', id="priority"),
    ],
)
def test_what_volcano_cannot_use_is_refused(annotation: str, priority: str, want: str) -> None:
    async def test(stage: Stage) -> None:
        jobs = make_jobs(node={"priorityClassName": priority} if priority else {})
        runtime = make_runtime(TORCH, jobs=jobs, podGroupPolicy={"volcano": {}})
        runtime["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": annotation}}
        await stage.create_runtime(runtime)
        with pytest.raises(StatusError) as caught:
            await stage.create(TRAIN_JOBS, make_trainjob())
        assert want in caught.value.message

    play(test)


def test_where_nobody_reads_pod_groups_none_is_made_and_an_event_says_so() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(TORCH, podGroupPolicy={"volcano": {}}), make_trainjob())
        assert stage.find(VOLCANO_POD_GROUPS) is None
        assert stage.find(JOB_SETS) is not None
        assert stage.notes == ["NotAsAsked"]

    play(test, context=FrameworkContext())


def test_keys_have_the_form_that_their_readers_expect() -> None:
    pair = make_ssh_keys()
    assert pair.private.startswith("-----BEGIN EC PRIVATE KEY-----\n")
    assert pair.public.startswith("ecdsa-sha2-nistp521 ") and pair.public.endswith("\n")
    curve = make_curve_keys()
    assert (len(curve.private), len(curve.public)) == (40, 40)
    assert str(pair) == "KeyPair(hidden)"
    assert encode_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
