"""A server with the jobs that pictures of the dashboard show: real programs, in a home of its own.

One trains on two ranks and is restarted once, one waits for GPUs that this machine does not have, one has failed with a
traceback, one has 64 ranks, one is suspended, one was deleted, and some have finished. Used by `dashboard_pictures`,
`dashboard_walk` and `dashboard_looks`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.desk import Desk, open_desk
from tests.browser.jobs import make_runtime_without_restarts, submit
from tests.support.clients import JSON
from tests.support.server import start_server

ROOT = Path(__file__).resolve().parent.parent
TRAINING, WAITING, FAILED, WIDE = "bert-finetune", "llama-pretrain", "gpt2-wikitext", "hyperparameter-sweep"
LONG = "resnet50-imagenet-batch-1024-rate-0-1-warm-up-5"
SUSPENDED, DELETED, FINISHED = "t5-summaries", "smoke-test", "evaluate"
PERCENT = 3
"""So far the one that trains has come, and has curves."""
RANKS = 64
GPUS = 4
"""Declared, so that there is something to lease on a machine without any."""

# Both ranks train the same model with DistributedDataParallel. In the first attempt rank 1 fails after some steps.
_TORCH = """
import os, time, torch, torch.distributed as dist, trainmaster
from torch.nn.parallel import DistributedDataParallel
rank, attempt = int(os.environ["PET_NODE_RANK"]), os.environ["TRAINMASTER_ATTEMPT"]
address = f"tcp://{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
print(f"rank {rank} of {dist.get_world_size()} has joined", flush=True)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
wanted = torch.rand(64, 1)

def train_step(step):
    inputs = torch.rand(32, 64)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ wanted)
    if attempt == "0" and step == 60 and rank == 1:
        raise RuntimeError(f"loss is not finite at step {step}: nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

for step in range(1, 6_001):
    loss = train_step(step)
    trainmaster.report(step=step, total=6_000, loss=loss, lr=0.01)
    if step % 5 == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)
    time.sleep(0.1)
"""
# The same without torch: the ranks meet at a socket.
_PLAIN = """
import math, os, socket, sys, time, trainmaster
rank, attempt = int(os.environ["JOB_COMPLETION_INDEX"]), os.environ["TRAINMASTER_ATTEMPT"]
print(f"rank {rank} of 2 has joined", flush=True)

def train_step(step):
    if attempt == "0" and step == 60 and rank == 1:
        raise RuntimeError(f"loss is not finite at step {step}: nan")
    return 2.5 * math.exp(-step / 120) + 0.2 + 0.1 * math.sin(step * 1.7 + rank) ** 2

for step in range(1, 6_001):
    loss = train_step(step)
    trainmaster.report(step=step, total=6_000, loss=loss, accuracy=1 - loss / 3)
    if step % 5 == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)
    time.sleep(0.1)
"""
_FAIL = """
class Batch(list):
    def take(self, count):
        return self[:count][count - 1]

def load(path):
    print("loading", path, flush=True)
    return Batch(range(8))

def train(batch):
    print("epoch 1", flush=True)
    return batch.take(64)

train(load("data/wikitext-103/train-00000-of-00016.parquet"))
"""
_WIDE = """
import os, time
print("rank", os.environ["JOB_COMPLETION_INDEX"], "is ready", flush=True)
time.sleep(36_000)
"""


@contextmanager
def show_world(home: Path, *, torch: Path | None = None, finished: int = 6) -> Iterator[Desk]:
    """Returns when every job is as the pictures want it. `torch`: an environment that has it; it can do without."""
    with start_server(home, environ={"TRAINMASTER_NODE_GPUS": str(GPUS)}) as server:
        desk = open_desk(server)
        try:
            _submit_all(desk, torch, finished)
            _wait_for_all(desk)
            yield desk
        finally:
            desk.end_jobs()


def _submit_all(desk: Desk, torch: Path | None, finished: int) -> None:
    make_runtime_without_restarts(desk.kube)
    if torch:
        _use_environment(desk, torch)
    code, runtime = (_TORCH, "torch-distributed") if torch else (_PLAIN, "plain")
    submit(desk.kube, TRAINING, code, nodes=2, gpus=1, runtime=runtime)
    submit(desk.kube, FAILED, _FAIL, runtime="once")
    submit(desk.kube, DELETED, "print('the only line')")
    for number in range(finished):
        submit(desk.kube, f"{FINISHED}-{number + 1:02}", f"print('accuracy', {0.87 + number / 1000})")
    submit(desk.kube, LONG, "print('top-1 accuracy 0.761')")
    submit(desk.kube, WIDE, _WIDE, nodes=RANKS, cpu="1m")
    submit(desk.kube, SUSPENDED, "print(1)", suspend=True)
    submit(desk.kube, WAITING, "print(1)", gpus=8)


def _use_environment(desk: Desk, environment: Path) -> None:
    """Programs of PyTorch's image run in this environment, by an image rule as an administrator writes it."""
    rules = [{"image": "pytorch/*", "environment": "torch"}]
    table = {"environments": {"torch": {"path": str(environment)}}, "rules": rules}
    path = "/api/v1/namespaces/kubeflow-system/configmaps"
    desk.kube.create(path, {"metadata": {"name": "image-rules"}, "data": {"rules.yaml": json.dumps(table)}})


def _wait_for_all(desk: Desk) -> None:
    desk.wait_for(FAILED, lambda job: job["state"] == "Failed")
    desk.wait_for(DELETED, lambda job: job["state"] == "Complete")
    desk.rest.delete(f"/api/v1/jobs/{DELETED}?namespace=default")
    desk.wait_for(LONG, lambda job: job["state"] == "Complete")
    desk.wait_for(
        WIDE, lambda job: all(one["state"] == "Running" for one in job["workers"]) and job["state"] == "Running"
    )
    desk.wait_for(TRAINING, lambda job: job["attempt"] == 1 and _read_percent(job) >= PERCENT)


def _read_percent(job: JSON) -> int:
    return int((job["progress"] or {}).get("percent") or 0)
