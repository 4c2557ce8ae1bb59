"""Boosted trees on rows that are spread over the replicas of an XGBoostJob. The tracker runs in the master."""

import os
import socket

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker


def main() -> None:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    tracker = None
    if rank == 0:
        tracker = RabitTracker(n_workers=world, host_ip=socket.gethostbyname(host), port=port)
        tracker.start()
    with collective.CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank)):
        joined = collective.allreduce(np.ones(1), collective.Op.SUM)
        print(f"replica {rank} of {int(joined[0])} has joined", flush=True)
        inputs = np.random.default_rng(rank).random((256, 4), dtype=np.float32)
        rows = xgboost.DMatrix(inputs, inputs @ np.array([1, -2, 3, 0.5], np.float32))
        history: dict[str, dict[str, list[float]]] = {}
        settings = {"tree_method": "hist", "max_depth": 3, "nthread": 1}
        xgboost.train(settings, rows, 10, evals=[(rows, "train")], evals_result=history, verbose_eval=False)
        if rank == 0:
            for step, loss in enumerate(history["train"]["rmse"], 1):
                print(f"step {step:2d} loss {loss:.4f}", flush=True)
    if tracker is not None:
        tracker.wait_for()


if __name__ == "__main__":
    main()
