"""DistributedDataParallel that survives the loss of any rank: it saves every few steps and goes on from there.

All ranks see one checkpoint directory, kept over restarts. Rank 0 saves; a checkpoint counts when it is committed, so
one that was cut short is never used. Asked to stop (the job is suspended or deleted), all ranks agree on a last step,
save, and end. With SAVE_EVERY=0 it saves nothing, and every restart begins at step 1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainmaster
from trainmaster import checkpoint

STEPS = int(os.environ.get("STEPS", "20"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "5"))


class Training:
    """A model, its optimizer and the number of the last step: all that must survive."""

    def __init__(self) -> None:
        torch.manual_seed(dist.get_rank())
        self.inputs = torch.rand(256, 4)
        self.targets = self.inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.1
        torch.manual_seed(0)
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step = 0

    def advance(self) -> float:
        """One step; the mean loss of all ranks."""
        loss = torch.nn.functional.mse_loss(self.model(self.inputs), self.targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean.item() / dist.get_world_size()

    def save(self) -> None:
        if dist.get_rank() == 0:
            path = checkpoint.begin(checkpoint.directory() / f"step-{self.step:06d}")
            path.mkdir(exist_ok=True)
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
            torch.save(state, path / "state.pt")
            checkpoint.commit(path, step=self.step)
        # Nobody runs ahead of a checkpoint that may still fail.
        dist.barrier()

    def load(self, path: Path) -> None:
        state = torch.load(path / "state.pt")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


def agree_to_stop() -> bool:
    """The notice reaches ranks at different moments; one that knows of it is enough for all."""
    asked = torch.tensor([float(checkpoint.should_stop())])
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    return bool(asked.item())


def report(step: int, loss: float) -> None:
    trainmaster.report(step=step, total=STEPS, loss=loss)
    print(f"attempt {checkpoint.attempt()} step {step:2d} loss {loss:.6f}", flush=True)
    folder = os.environ.get("TRAINMASTER_OUTPUT_DIR")
    if folder:
        with open(f"{folder}/loss.jsonl", "a") as file:
            file.write(json.dumps({"attempt": checkpoint.attempt(), "step": step, "loss": loss}) + "\n")


def main() -> None:
    checkpoint.catch_stop()
    dist.init_process_group("gloo")
    training = Training()
    begin = checkpoint.resume_from() if SAVE_EVERY else None
    if begin is not None:
        training.load(begin)
    if dist.get_rank() == 0:
        print(f"begins after step {training.step}", flush=True)
    while training.step < STEPS:
        loss = training.advance()
        if dist.get_rank() == 0:
            report(training.step, loss)
        stopping = agree_to_stop()
        if SAVE_EVERY and (stopping or training.step % SAVE_EVERY == 0):
            training.save()
        if stopping:
            break
    # Without it a rank may be gone while another still talks to it.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
