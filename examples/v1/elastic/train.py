"""DistributedDataParallel with a number of workers that may change while the job runs.

When a worker joins, leaves or dies, torchrun starts the programs of all workers again with new ranks, and they continue
from the last checkpoint.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 500
CHECKPOINT = Path(sys.argv[1])


def save(state: dict[str, object]) -> None:
    """A worker may die at any moment, so a checkpoint replaces the previous one only when it is complete."""
    draft = CHECKPOINT.with_suffix(".draft")
    torch.save(state, draft)
    draft.replace(CHECKPOINT)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    inputs = torch.rand(256, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.1
    model = torch.nn.Linear(4, 1)
    step = 0
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT)
        model.load_state_dict(state["model"])
        step = state["step"]
    print(f"rank {rank} of {world} continues after step {step}", flush=True)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.02)
    while step < STEPS:
        loss = torch.nn.functional.mse_loss(parallel(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            save({"model": model.state_dict(), "step": step})
            print(f"step {step:3d} loss {loss.item():.4f} on {world} workers", flush=True)
        time.sleep(0.2)  # so that the job runs long enough to be scaled
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
