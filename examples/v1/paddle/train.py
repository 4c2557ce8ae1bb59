"""Linear regression with Paddle's DataParallel over gloo. Paddle's launcher reads the variables of the operator."""

import numpy as np
import paddle
import paddle.distributed as dist


def main() -> None:
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} has joined", flush=True)
    rows = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
    inputs = paddle.to_tensor(rows)
    targets = paddle.to_tensor(rows @ np.array([[1], [-2], [3], [0.5]], np.float32) + 0.1)
    paddle.seed(0)
    model = paddle.DataParallel(paddle.nn.Linear(4, 1))
    optimizer = paddle.optimizer.SGD(0.3, parameters=model.parameters())
    for step in range(1, 31):
        loss = paddle.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step == 1 or step % 5 == 0:
            mean = loss.detach()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step:2d} loss {float(mean) / world:.4f}", flush=True)


if __name__ == "__main__":
    main()
