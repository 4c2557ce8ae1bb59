"""Linear regression on all processes of a JAXJob: each has its own rows, and the gradients are averaged."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather


@jax.jit
@jax.value_and_grad
def measure(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    return jnp.mean((inputs @ weights - targets) ** 2)


def main() -> None:
    jax.distributed.initialize(
        f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
        int(os.environ["NUM_PROCESSES"]),
        int(os.environ["PROCESS_ID"]),
    )
    rank, world = jax.process_index(), jax.process_count()
    print(f"process {rank} of {world} sees {jax.device_count()} devices", flush=True)
    inputs = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
    targets = inputs @ np.array([1, -2, 3, 0.5], np.float32) + 0.1
    weights = np.zeros(4, np.float32)
    for step in range(1, 31):
        losses, gradients = process_allgather(measure(weights, inputs, targets))
        weights = weights - 0.3 * gradients.mean(axis=0)
        if rank == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:2d} loss {losses.mean():.4f}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
