"""Ports on a shared network, one for all Pods of a job; otherwise the names of its Services, and which names bypass
the proxy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import NAMESPACES
from trainmaster.api.status import NotFound
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import PyTorchJob
from trainmaster.node.launch.contract import Prepared
from trainmaster.node.network.leases import NetworkLeases
from trainmaster.node.shims.pod_directory import FoundPod
from trainmaster.node.workloads import Workloads
from trainmaster.shim.protocol import FULL, PLAIN
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def make_pod(job: str, name: str, uid: str = "") -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": uid or job, "controller": True}
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


def make_service(name: str, job: str = "", namespace: str = "ns") -> Object:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": job, "controller": True}
    meta: Object = {"name": name, "namespace": namespace}
    return {"metadata": {**meta, "ownerReferences": [owner]} if job else meta}


class Desert:
    """A client of a server that has no objects."""

    async def get(self, *_: object) -> Object:
        raise NotFound(404, "NotFound", "gone")


def test_services_are_reached_without_the_proxy_those_of_the_own_job_first(tmp_path: Path) -> None:
    client = cast(Any, Desert())
    leases = NetworkLeases(tmp_path, client, Workloads(client), FULL)
    others = [make_service(f"other-{number:03d}", "b") for number in range(100)]
    own = [make_service("a-master-0", "a"), make_service("a-worker-0", "a"), make_service("far", namespace="elsewhere")]
    for item in (*others, *own):
        leases.followed.setdefault(item["metadata"]["namespace"], {})[item["metadata"]["name"]] = item
    site = asyncio.run(leases.build_site(make_pod("a", "worker-0"), {}))
    direct = site.variables["NO_PROXY"].split(",")
    assert {"a-master-0", "a-worker-0", "other-000", site.address} <= set(direct) and "far" not in direct
    assert len(direct) < 90, "a variable has a limited length"


def test_the_pods_of_a_v1_job_find_each_other_by_the_names_of_its_services(tmp_path: Path) -> None:
    container = {"name": "pytorch", "image": "i"}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}

    async def main() -> None:
        async with running_cluster() as cluster:
            client = cluster.client
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
            spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": 2}}}
            job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}
            uid = (await client.create(PyTorchJob.gvr, job, "ns"))["metadata"]["uid"]
            leases = NetworkLeases(tmp_path, client, Workloads(client), FULL)
            worker, master = make_pod("a", "worker-1", uid), make_pod("a", "master-0", uid)
            known = {name: line[0] for line in await leases.build_lines(worker) for name in line[1:]}
            assert {"a-master-0", "a-worker-0", "a-worker-1.ns.svc"} <= set(known)
            assert leases.find_address(master) == known["a-master-0"]
            assert leases.find_address(worker) == known["a-worker-1"]

    run_virtual(main())
