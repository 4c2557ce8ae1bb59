"""Ports on a shared network: one job uses the same one in all its Pods, and no two jobs the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import Prepared
from trainmaster.node.network.leases import NetworkLeases
from trainmaster.node.shims.pod_directory import FoundPod
from trainmaster.shim.protocol import PLAIN

pytestmark = pytest.mark.unit


def make_pod(job: str, name: str) -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": job, "controller": True}
    meta = {"name": f"{job}-{name}", "namespace": "ns", "uid": f"{job}-{name}", "ownerReferences": [owner]}
    return Pod({"metadata": meta, "spec": {"containers": []}})


def lease(leases: NetworkLeases, pod: Pod) -> int:
    return asyncio.run(leases.build_site(pod, {})).lease_port(23456, "")


def test_the_pods_of_a_v1_job_share_the_port_of_their_master(tmp_path: Path) -> None:
    nobody = cast(Any, None)  # neither is asked on a shared network
    leases = NetworkLeases(tmp_path, nobody, nobody, PLAIN)
    master, worker, other = make_pod("a", "master-0"), make_pod("a", "worker-0"), make_pod("b", "master-0")
    port = lease(leases, master)
    assert lease(leases, worker) == port and lease(leases, other) != port
    leases.release(master)
    assert lease(leases, make_pod("a", "master-1")) == port, "while any Pod of the job is there"
    assert lease(leases, other) != port


def test_leases_of_single_pods_and_of_the_whole_job_are_known_after_a_restart(tmp_path: Path) -> None:
    nobody = cast(Any, None)
    before, pod = NetworkLeases(tmp_path, nobody, nobody, PLAIN), make_pod("a", "worker-0")
    site = asyncio.run(before.build_site(pod, {}))
    asked = ((2222, "a-worker-0"), (2222, "a-worker-1"), (2222, ""))
    ports = [site.lease_port(*one) for one in asked]
    assert len(set(ports)) == 3
    (tmp_path / pod.uid).mkdir()
    asyncio.run(before.build_sandbox(pod, Prepared(site)))
    after = NetworkLeases(tmp_path, nobody, nobody, PLAIN)
    after.restore(pod, FoundPod(pod.uid, alive=True, rebooted=False, pod=None, attempts=()))
    again = asyncio.run(after.build_site(pod, {}))
    assert [again.lease_port(*one) for one in asked] == ports
