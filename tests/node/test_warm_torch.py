"""Warm start with torch on a real server: two ranks of `python`, and torchrun with warm workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.training import Lab, training

pytestmark = pytest.mark.node

PROGRAM = """
import os
os.environ.update(RANK=os.environ["PET_NODE_RANK"], WORLD_SIZE=os.environ["PET_NNODES"],
                  MASTER_ADDR=os.environ["PET_MASTER_ADDR"], MASTER_PORT=os.environ["PET_MASTER_PORT"])
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.rand(8, 4)).sum().backward()
optimizer.step()
seeds = [None, None]
dist.all_gather_object(seeds, torch.initial_seed())
print("threads", torch.get_num_threads(), "seeds differ", len(set(seeds)) == 2)
dist.barrier()
dist.destroy_process_group()
"""
STACK = """
import torch, transformers, trainmaster
sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=100)
model = transformers.BertModel(transformers.BertConfig(**sizes))
print("shape", tuple(model(torch.ones(1, 4, dtype=torch.long)).last_hidden_state.shape))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("warm") / "home") as lab:
        yield lab


def read_starts(lab: Lab, name: str) -> list[str]:
    pods = {pod["metadata"]["name"] for pod in lab.list_pods(name)}
    found = lab.raw.get("/api/v1/namespaces/default/events")["items"]
    return [
        item["message"] for item in found if item["reason"] == "WarmStart" and item["involvedObject"]["name"] in pods
    ]


def submit(lab: Lab, name: str, command: list[str]) -> str:
    trainer = {"numNodes": 2, "numProcPerNode": 1, "image": "x", "command": command}
    lab.submit({"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}})
    ended = lab.wait_for_end(name)
    assert ended["type"] == "Complete", lab.describe(name)
    return lab.read_logs(name)


def test_two_ranks_and_torchrun_begin_warm_once_the_imports_are_done(lab: Lab) -> None:
    submit(lab, "first", ["python", "-c", "print('cold')"])
    folder = lab.home / "pods" / ".zygote"
    lab.wait_until(lambda: list(folder.glob("warm-*.sock")), "the imports are done")
    text = submit(lab, "ranks", ["python", "-c", PROGRAM])
    assert text.count("seeds differ True") == 2, text
    lab.wait_until(lambda: len(read_starts(lab, "ranks")) == 2, "it is said how they started")
    started = read_starts(lab, "ranks")
    assert all("Container node started warm: environment " in text for text in started), started
    lab.start("torch-checkpoint")
    assert lab.wait_for_end("torch-checkpoint")["type"] == "Complete", lab.describe("torch-checkpoint")
    lab.wait_until(lambda: len(read_starts(lab, "torch-checkpoint")) == 2, "it is said how they started")
    assert all("started warm" in text for text in read_starts(lab, "torch-checkpoint")), read_starts(
        lab, "torch-checkpoint"
    )


def test_what_a_program_imported_is_imported_before_the_next_one_starts(lab: Lab) -> None:
    numbers = itertools.count()

    def starts_with_transformers() -> bool:
        name = f"stack-{next(numbers)}"
        assert submit(lab, name, ["python", "-c", STACK]).count("shape (1, 4, 32)") == 2
        return any("started warm" in text and "transformers" in text for text in read_starts(lab, name))

    lab.wait_until(starts_with_transformers, "a program starts with transformers imported")
