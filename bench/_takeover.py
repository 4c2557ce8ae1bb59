"""How long TrainJobs wait when the leading operator ends: from the signal until the other one has created a JobSet.

Both operators have the lease times that we ship. No webhooks, because they would answer at the address of one of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from bench._load import NAMESPACE
from bench._managers import launch_operator, start_operator
from bench._operator_site import await_jobset, make_suspended
from tests.kube.cluster import KubeCluster
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.http import HttpClient

_ALONE = ("--no-webhook", "--no-progress")
_CAUGHT_UP_SECONDS = 10.0
"""After which the other operator has filled its caches and waits for the lease."""


async def measure_takeover(cluster: KubeCluster, client: HttpClient, number: signal.Signals) -> float:
    """Seconds."""
    leader, follower = (f"{role}-{number.name.lower()}" for role in ("leader", "follower"))
    pid = await asyncio.to_thread(start_operator, cluster, leader, _ALONE)
    await asyncio.to_thread(launch_operator, cluster, follower, _ALONE)
    await asyncio.sleep(_CAUGHT_UP_SECONDS)
    began = time.perf_counter()
    os.kill(pid, number)
    name = f"after-{number.name.lower()}"
    await client.create(TRAIN_JOBS, make_suspended(name), NAMESPACE)
    await await_jobset(client, name)
    taken = time.perf_counter() - began
    cluster.processes.kill(follower)
    cluster.processes.kill(leader)
    return taken
