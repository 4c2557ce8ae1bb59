"""Tells two clouds of points apart with TensorFlow on all workers, and prints the loss and the accuracy."""

import json
import os

import numpy as np
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
world = strategy.num_replicas_in_sync
random = np.random.default_rng(0)
labels = random.integers(0, 2, 512).astype("float32")
points = (random.normal(size=(512, 2)) + 3 * labels[:, None]).astype("float32")
batches = tf.data.Dataset.from_tensor_slices((points, labels[:, None])).batch(64)
batches = strategy.experimental_distribute_dataset(batches)
with strategy.scope():
    weights = tf.Variable(tf.zeros((2, 1)))
    bias = tf.Variable(tf.zeros((1,)))


def step(inputs, wanted):
    """One worker's part of a batch: its gradients are added to those of the others before they are applied."""
    with tf.GradientTape() as tape:
        logits = inputs @ weights + bias
        losses = tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits)
        loss = tf.reduce_sum(losses) / 64
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, [weights, bias]))
    for variable, gradient in zip((weights, bias), gradients, strict=True):
        variable.assign_sub(0.5 * gradient)
    right = tf.reduce_sum(tf.cast((logits > 0) == (wanted > 0.5), tf.float32))
    return loss, right


@tf.function
def train_epoch():
    loss, right = 0.0, 0.0
    for inputs, wanted in batches:
        one, good = strategy.run(step, args=(inputs, wanted))
        loss += strategy.reduce("SUM", one, axis=None)
        right += strategy.reduce("SUM", good, axis=None)
    return loss / 8, right / 512


for epoch in range(5):
    loss, accuracy = train_epoch()
    print(f"worker {task} of {world} epoch {epoch} loss {float(loss):.4f} accuracy {float(accuracy):.4f}")
print(f"final loss: {float(loss):.4f} accuracy: {float(accuracy):.4f} on {world} workers")
