"""Sets OMP_NUM_THREADS: how many threads each process of a container should use, from its CPUs and its processes.

Without it every rank starts as many threads as the machine has cores, and ranks on one machine slow each other down.
The Pod's own variables override it.
"""

from __future__ import annotations

import os

from trainmaster.api.devices import devices_env
from trainmaster.api.meta import Fields
from trainmaster.api.pods.requests import CPU, read_amounts
from trainmaster.api.reading import list_items, read_fields, read_text

VARIABLE = "OMP_NUM_THREADS"
_PROCESSES = ("PET_NPROC_PER_NODE", "NPROC_PER_NODE")


def threads_env(container: Fields, cores: int) -> dict[str, str]:
    """`cores`: those of the machine. Empty for a single process that may use all of them."""
    processes = count_processes(container, cores)
    cpus = find_cpus(container)
    if cpus is None and processes == 1:
        return {}
    share = (cores if cpus is None else min(cpus, cores)) // processes
    return {VARIABLE: str(max(1, int(share)))}


def node_env(pod: Fields, container: Fields, cores: int | None = None) -> dict[str, str]:
    """Variables that the node sets for a container: GPUs and threads. The Pod's own override them."""
    most = len(os.sched_getaffinity(0)) if cores is None else cores
    return {**devices_env(pod, container["name"]), **threads_env(container, most)}


def find_cpus(container: Fields) -> float | None:
    """CPUs of a container: its limit, else its request."""
    for side in ("limits", "requests"):
        amount = read_amounts(read_fields(container, "resources", side)).get(CPU)
        if amount:
            return amount / 1000
    return None


def count_processes(container: Fields, cores: int) -> int:
    """The number of training processes that a container starts, as given to torchrun; "auto" and "cpu" mean at most one
    per CPU, each with one thread; "gpu" one per GPU of the container."""
    found = {entry.get("name"): read_text(entry, "value") for entry in list_items(container, "env")}
    text = next((found[name] for name in _PROCESSES if found.get(name)), "1")
    if text.isascii() and text.isdigit():
        return max(1, int(text))
    limits = read_amounts(read_fields(container, "resources", "limits"))
    gpus = sum(n for name, n in limits.items() if name.endswith("/gpu"))
    return max(1, gpus) if text == "gpu" or gpus else max(1, int(find_cpus(container) or cores))
