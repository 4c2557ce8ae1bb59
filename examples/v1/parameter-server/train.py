"""Linear regression with ParameterServerStrategy: the chief hands out steps to the workers, the parameter server keeps
the weights. TF_CONFIG, set by the operator, tells each Pod its role and where the others are."""

import numpy as np
import tensorflow as tf

STEPS = 30
cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()


def serve() -> None:
    """A worker or a parameter server runs until the end of the job, when cleanPodPolicy deletes its Pod."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    )
    print(f"{cluster.task_type} {cluster.task_id} is ready", flush=True)
    server.join()


def coordinate() -> None:
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    inputs = np.random.default_rng(0).random((256, 4), dtype=np.float32)
    targets = inputs @ np.array([[1], [-2], [3], [0.5]], np.float32) + 0.1
    with strategy.scope():
        weights = tf.Variable(tf.zeros((4, 1)))
    print(f"the weights are on {weights.device}", flush=True)

    @tf.function
    def advance():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
        weights.assign_sub(0.15 * tape.gradient(loss, weights))
        return loss

    workers = cluster.cluster_spec().num_tasks("worker")
    for step in range(1, STEPS + 1):
        losses = coordinator.fetch([coordinator.schedule(advance) for _ in range(workers)])
        if step == 1 or step % 5 == 0:
            print(f"step {step:2d} loss {np.mean(losses):.4f}", flush=True)


if cluster.task_type == "chief":
    coordinate()
else:
    serve()
