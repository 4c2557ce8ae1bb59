"""Linear regression with MultiWorkerMirroredStrategy, which finds all workers in TF_CONFIG, set by the operator."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, world = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
print(f"worker {rank} of {world} has joined", flush=True)
inputs = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
targets = inputs @ np.array([[1], [-2], [3], [0.5]], np.float32) + 0.1
with strategy.scope():
    weights = tf.Variable(tf.zeros((4, 1)))


@tf.function
def advance():
    """One step on this worker's own rows, with the mean of the gradients of all workers."""

    def compute():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
        context = tf.distribute.get_replica_context()
        gradient, mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, [tape.gradient(loss, weights), loss])
        weights.assign_sub(0.3 * gradient)
        return mean

    return strategy.run(compute)


for step in range(1, 31):
    loss = advance()
    if rank == 0 and (step == 1 or step % 5 == 0):
        print(f"step {step:2d} loss {float(loss):.4f}", flush=True)
