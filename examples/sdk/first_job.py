"""A function trains on two nodes, from Python.

pip install 'trainmaster[sdk]' && trainmaster up --detach
python examples/sdk/first_job.py
"""

from kubeflow.trainer import CustomTrainer

import trainmaster


def train(lr, steps):
    """Fits a line. All that it needs is inside: the function travels to the nodes as text."""
    import os
    import random

    rank = int(os.environ["JOB_COMPLETION_INDEX"])
    random.seed(rank)
    points = [(x / 50 - 1, 3 * x / 50 + random.gauss(0, 0.1)) for x in range(100)]
    slope = offset = 0.0
    for step in range(steps):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= lr * sum(error * x for error, x in errors) / len(points)
        offset -= lr * sum(error for error, _ in errors) / len(points)
        loss = sum(error * error for error, _ in errors) / len(points)
        print(f"node {rank} step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    client = trainmaster.connect()
    name = client.train("plain", trainer=CustomTrainer(func=train, func_args={"lr": 0.5, "steps": 8}, num_nodes=2))
    for line in client.get_job_logs(name, follow=True):
        print(line)
    job = client.wait_for_job_status(name, polling_interval=1)
    print(job.status, sorted(step.name for step in job.steps))
    client.delete_job(name)
