"""Linear regression with DistributedDataParallel over gloo. The operator sets RANK, WORLD_SIZE and MASTER_ADDR."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} has joined", flush=True)
    torch.manual_seed(rank)
    inputs = torch.rand(256, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.1
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(1, 31):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 5 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step:2d} loss {mean.item() / world:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
