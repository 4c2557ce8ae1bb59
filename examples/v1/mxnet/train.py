"""Linear regression with MXNet's distributed key-value store: workers send gradients to the server, which adds them up.

The operator sets DMLC_ROLE and the address of the scheduler. In the scheduler and in the server, importing MXNet runs
that role and ends the program when the workers have finished; what follows runs in the workers only.
"""

import mxnet as mx


def main() -> None:
    store = mx.kvstore.create("dist_sync")
    rank, world = store.rank, store.num_workers
    print(f"worker {rank} of {world} has joined", flush=True)
    mx.random.seed(rank)
    inputs = mx.nd.random.uniform(shape=(256, 4))
    targets = mx.nd.dot(inputs, mx.nd.array([[1], [-2], [3], [0.5]])) + 0.1
    weights, gradient = mx.nd.zeros((4, 1)), mx.nd.zeros((4, 1))
    store.init("gradient", gradient)
    for step in range(1, 31):
        error = mx.nd.dot(inputs, weights) - targets
        store.push("gradient", 2 * mx.nd.dot(inputs.T, error) / len(inputs))
        store.pull("gradient", gradient)
        weights -= 0.3 * gradient / world
        if rank == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:2d} loss {error.square().mean().asscalar():.4f}", flush=True)


if __name__ == "__main__":
    main()
