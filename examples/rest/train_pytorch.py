"""Fits a line with PyTorch on all nodes: each has its own data, gradients are averaged, rank 0 prints the loss."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
inputs = torch.rand(256, 1)
targets = 3 * inputs + 1
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(f"rank {rank} of {world} epoch {epoch} loss {loss.item():.4f}")
total = loss.detach().clone()
dist.all_reduce(total)
print(f"final loss: {total.item() / world:.6f} on {world} nodes")
dist.destroy_process_group()
