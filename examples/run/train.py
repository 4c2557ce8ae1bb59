"""Two or more nodes learn a line together, with nothing but Python.

    trainmaster run --nodes 2 examples/run/train.py --steps 60

Each node holds its share of the data; after every step the gradients are averaged over a socket, through rank 0, as a
real framework does with more care. Progress and loss are reported, so that `run` and `kubectl get trainjob` show them.
"""

import argparse
import json
import os
import random
import socket
import time
from pathlib import Path

try:
    from trainmaster import report
except ImportError:  # elsewhere there is nobody to report to

    def report(**facts):
        pass


rank, world = int(os.environ.get("PET_NODE_RANK", "0")), int(os.environ.get("PET_NNODES", "1"))


def meet():
    """Rank 0 listens, the others come to it; who comes too early tries again."""
    address = (os.environ.get("PET_MASTER_ADDR", "localhost"), int(os.environ.get("PET_MASTER_PORT", "29500")))
    if rank == 0:
        with socket.create_server(address, backlog=world) as server:
            return [server.accept()[0].makefile("rw") for _ in range(world - 1)]
    deadline = time.monotonic() + 60
    while True:
        try:
            return [socket.create_connection(address, timeout=60).makefile("rw")]
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(peer, values):
    peer.write(json.dumps(values) + "\n")
    peer.flush()


def all_reduce(peers, values):
    """The mean over all ranks, the same on each of them."""
    if rank > 0:
        send(peers[0], values)
        return json.loads(peers[0].readline())
    rows = [values] + [json.loads(peer.readline()) for peer in peers]
    mean = [sum(column) / world for column in zip(*rows, strict=True)]
    for peer in peers:
        send(peer, mean)
    return mean


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each step, to have something to see")
    options = parser.parse_args()
    peers = meet() if world > 1 else []
    print(f"rank {rank} of {world} has met its peers")
    draw = random.Random(rank)
    data = [(x, 3.0 * x - 1.0 + draw.gauss(0, 0.1)) for x in (draw.uniform(-1, 1) for _ in range(200))]
    slope, offset = 0.0, 0.0
    for step in range(1, options.steps + 1):
        errors = [(slope * x + offset - y, x) for x, y in data]
        gradient = [2 * sum(e * x for e, x in errors) / len(data), 2 * sum(e for e, _ in errors) / len(data)]
        loss = sum(e * e for e, _ in errors) / len(data)
        loss, d_slope, d_offset = all_reduce(peers, [loss, *gradient])
        slope, offset = slope - options.lr * d_slope, offset - options.lr * d_offset
        report(step=step, total=options.steps, loss=loss, slope=slope)
        if rank == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:3d}  loss {loss:.4f}  y = {slope:.2f} x {offset:+.2f}")
        time.sleep(options.pause)
    if rank == 0:
        model = Path(os.environ.get("TRAINMASTER_OUTPUT_DIR", ".")) / "model.json"
        model.write_text(json.dumps({"slope": slope, "offset": offset}))


if __name__ == "__main__":
    main()
