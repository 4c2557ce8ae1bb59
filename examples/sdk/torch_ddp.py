"""A function trains with torch on two nodes: torchrun starts it, DDP averages the gradients.

python examples/sdk/torch_ddp.py        # torch must be in the environment of `trainmaster up`, or of an image rule
"""

from kubeflow.trainer import CustomTrainer

import trainmaster


def train(steps):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(steps):
        x = torch.randn(64, 4)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"rank {dist.get_rank()} of {dist.get_world_size()} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    client = trainmaster.connect()
    name = client.train(trainer=CustomTrainer(func=train, func_args={"steps": 20}, num_nodes=2))
    client.wait_for_job_status(name, polling_interval=1)
    print(*client.get_job_logs(name), sep="\n")
    client.delete_job(name)
