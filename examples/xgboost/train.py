"""Boosted trees on rows that are spread over the workers. The first worker also runs the tracker they meet at."""

from __future__ import annotations

import os
import socket

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker


def main() -> None:
    host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    rank, workers = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
    tracker = None
    if rank == 0:
        tracker = RabitTracker(n_workers=workers, host_ip=socket.gethostbyname(host), port=port)
        tracker.start()
    with collective.CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank)):
        print(f"worker {collective.get_rank()} of {collective.get_world_size()} has joined", flush=True)
        inputs = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
        targets = inputs @ np.array([1, -2, 3, 0.5], np.float32)
        rows = xgboost.DMatrix(inputs, targets)
        history: dict[str, dict[str, list[float]]] = {}
        settings = {"tree_method": "hist", "max_depth": 3, "nthread": 1}
        xgboost.train(settings, rows, 10, evals=[(rows, "train")], evals_result=history, verbose_eval=False)
        if collective.get_rank() == 0:
            for step, loss in enumerate(history["train"]["rmse"], 1):
                print(f"step {step:2d} loss {loss:.4f}", flush=True)
    if tracker is not None:
        tracker.wait_for()


if __name__ == "__main__":
    main()
