"""What takes minutes and is not part of `make test`: FSDP on four nodes, torchrun's own elastic restart, DeepSpeed.

    make heavy

DeepSpeed is installed by the node itself, over the frameworks' environment, because its image rule asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.test_frameworks import LOSS
from tests.support.training import Lab, training

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

FSDP = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
inputs = torch.rand(256, 4)
targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
print(f"rank {rank} of {world} holds {sum(p.to_local().numel() for p in model.parameters())} numbers", flush=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 31):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step:2d} loss {mean.item() / world:.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""

# A worker dies, its launcher and the others start all workers again, in the same Pods: the newest checkpoint is then
# newer than TRAINMASTER_RESUME_FROM, and rank 0 says which it is.
ELASTIC = """
import os, signal
import torch.distributed as dist
import train
from trainmaster import checkpoint

whole_advance = train.Training.advance
marker = checkpoint.directory() / ".died"

def advance(training):
    loss = whole_advance(training)
    if training.step == 8 and dist.get_rank() == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return loss

def resume_from():
    chosen = [checkpoint.find_newest(checkpoint.directory())]
    dist.broadcast_object_list(chosen, src=0)
    return chosen[0]

train.Training.advance = advance
checkpoint.resume_from = resume_from
train.main()
"""

DEEPSPEED = """
import deepspeed, torch, torch.distributed as dist

deepspeed.init_distributed("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
inputs = torch.rand(64, 4)
targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 64, "zero_optimization": {"stage": 1}}
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
config["zero_allow_untested_optimizer"] = True
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
print(f"rank {rank} of {world} has joined", flush=True)
for step in range(1, 31):
    loss = torch.nn.functional.mse_loss(engine(inputs), targets)
    engine.backward(loss)
    engine.step()
    if rank == 0:
        print(f"step {step:2d} loss {loss.item():.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("heavy") / "home") as lab:
        lab.limit = 600.0
        yield lab


def run(lab: Lab, name: str, program: str, nodes: int, runtime: str = "", **env: str) -> str:
    variables = [{"name": key, "value": value} for key, value in {"OMP_NUM_THREADS": "1", **env}.items()]
    trainer = {"numNodes": nodes, "command": ["torchrun", "/code/program.py"], "env": variables}
    trainer["image"] = f"example.com/{name}:1"
    lab.start("torch-checkpoint", name=name, runtime=runtime, files={"program.py": program}, trainer=trainer)
    ended = lab.wait_for_end(name)
    text = lab.read_logs(name)
    assert ended["type"] == "Complete", f"{ended['message']}\n{text}"
    return text


def check_losses(text: str) -> None:
    losses = [float(found) for found in LOSS.findall(text)]
    assert len(losses) == 30 and losses[-1] < losses[0] / 2, losses


def test_fsdp_shards_a_model_over_four_nodes(lab: Lab) -> None:
    text = run(lab, "fsdp", FSDP, 4)
    assert text.count("of 4 holds") == 4
    check_losses(text)
    lab.remove("fsdp")


def test_torchrun_restarts_workers_in_their_pods_and_they_go_on_from_the_newest_checkpoint(lab: Lab) -> None:
    path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    runtime = lab.raw.get(f"{path}/torch-distributed")
    policy = {"minNodes": 2, "maxNodes": 2, "maxRestarts": 3}
    runtime["spec"]["mlPolicy"] = {"torch": {"elasticPolicy": policy}}
    lab.raw.create(path, {**runtime, "metadata": {"name": "elastic"}})
    run(lab, "elastic", ELASTIC, 2, "elastic")
    steps = [entry["step"] for entry in lab.read_losses("elastic")]
    again = steps.index(6, steps.index(6) + 1)
    assert steps[again:] == [*range(6, 21)], steps
    jobset = lab.raw.get("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/elastic")
    assert jobset["status"].get("restarts", 0) == 0
    lab.remove("elastic")


def test_deepspeed_trains_in_an_environment_that_the_node_makes(lab: Lab) -> None:
    lab.change_rules({"image": "example.com/deepspeed*", "environment": "frameworks", "packages": ["deepspeed"]})
    text = run(lab, "deepspeed", DEEPSPEED, 2, DS_ACCELERATOR="cpu")
    assert "rank 1 of 2 has joined" in text
    check_losses(text)
    lab.remove("deepspeed")
