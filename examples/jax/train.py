"""A linear model on all processes of the job: rows are spread over their devices, JAX adds the gradients up."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def loss_of(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    return jnp.mean((inputs @ weights - targets) ** 2)


@jax.jit
def advance(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, inputs, targets)
    return weights - 0.3 * gradient, loss


def main() -> None:
    jax.distributed.initialize(
        os.environ["JAX_COORDINATOR_ADDRESS"],
        int(os.environ["JAX_NUM_PROCESSES"]),
        int(os.environ["JAX_PROCESS_ID"]),
    )
    rank = jax.process_index()
    print(f"process {rank} of {jax.process_count()} sees {jax.device_count()} devices", flush=True)
    mesh = jax.make_mesh((jax.device_count(),), ("rows",))
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rows",), ()))
    own = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
    inputs = jax.make_array_from_process_local_data(spread, own)
    targets = jax.make_array_from_process_local_data(spread, own @ np.array([1, -2, 3, 0.5], np.float32) + 0.1)
    weights = jax.make_array_from_process_local_data(everywhere, np.zeros(4, np.float32))
    for step in range(1, 31):
        weights, loss = advance(weights, inputs, targets)
        if rank == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:2d} loss {float(loss):.4f}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
