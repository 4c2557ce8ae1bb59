"""Addresses and names of Pods: given once, complete before anybody starts, and back when the gang is gone."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.network.addresses import (
    Addresses,
    AddressesExhausted,
    EgressRoutes,
    GangPeers,
    build_hosts,
    build_service_lines,
    get_gang,
    list_mapped_ports,
    list_peer_names,
)

pytestmark = pytest.mark.unit


def make_pod(hostname: str, subdomain: str = "job", **labels: str) -> Object:
    spec: dict[str, Any] = {"hostname": hostname, "containers": []}
    if subdomain:
        spec["subdomain"] = subdomain
    meta = {"name": f"{hostname}-abcde", "namespace": "team", "uid": f"uid-{hostname}", "labels": labels}
    return {"metadata": meta, "spec": spec}


def test_an_address_is_fixed_for_a_gang_and_a_name() -> None:
    addresses = Addresses()
    first = addresses.lease("g", "a")
    assert first == "10.244.0.2" and addresses.lease("g", "a") == first
    assert len({first, addresses.lease("g", "b"), addresses.lease("h", "a")}) == 3


def test_a_released_address_rests_before_it_is_used_again() -> None:
    addresses = Addresses("10.0.0.0/29")
    given = [addresses.lease("g", str(i)) for i in range(3)]
    addresses.release("g")
    later = [addresses.lease("h", str(i)) for i in range(3)]
    assert given == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert later == ["10.0.0.5", "10.0.0.6", "10.0.0.2"]


def test_a_full_network_says_so() -> None:
    addresses = Addresses("10.0.0.0/29")
    for i in range(5):
        addresses.lease("g", str(i))
    with pytest.raises(AddressesExhausted, match=r"all addresses of 10.0.0.0/29 are taken"):
        addresses.lease("g", "more")


def test_what_a_pod_directory_says_is_kept() -> None:
    addresses = Addresses()
    addresses.restore("g", "a", "10.244.1.7")
    assert addresses.lease("g", "a") == "10.244.1.7"
    assert addresses.lease("g", "b") == "10.244.1.8"


def test_a_jobset_names_all_its_pods_before_they_exist() -> None:
    jobset = {
        "metadata": {"name": "js"},
        "spec": {
            "network": {"subdomain": "net"},
            "replicatedJobs": [
                {"name": "launcher", "template": {"spec": {}}},
                {"name": "node", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}},
            ],
        },
    }
    names = [name for name, _ in list_peer_names(JobSet(jobset))]
    assert names == ["js-launcher-0-0", "js-node-0-0", "js-node-0-1", "js-node-1-0", "js-node-1-1"]
    assert {sub for _, sub in list_peer_names(JobSet(jobset))} == {"net"}


def test_the_pods_own_full_name_comes_first_and_peers_follow() -> None:
    addresses = Addresses()
    pod = make_pod("js-1", **{JOBSET_UID: "u"})
    lines = build_hosts(addresses, Pod(pod), GangPeers([("js-0", "job"), ("js-1", "job")]))
    own, peer = addresses.lease("team/u", "js-1"), addresses.lease("team/u", "js-0")
    assert lines[0][:2] == (own, "js-1.job.team.svc.cluster.local")
    assert lines[0][-2:] == ("js-1.job", "js-1")
    assert lines[1][:2] == (peer, "js-0.job.team.svc.cluster.local")
    assert {line[0] for line in lines if "job" in line[1:]} == {own, peer}


def test_a_pod_without_a_subdomain_has_its_hostname_only() -> None:
    addresses = Addresses()
    lines = build_hosts(addresses, Pod(make_pod("alone", "")), GangPeers())
    assert lines == ((addresses.lease("uid-alone", "alone"), "alone"),)


def make_v1_pod(name: str, **spec: str) -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "pt", "uid": "u-pt", "controller": True}
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": [owner]}
    return Pod({"metadata": meta, "spec": {"containers": [], **spec}})


def test_the_pods_of_a_v1_job_know_its_services_before_they_run() -> None:
    addresses = Addresses()
    peers = GangPeers(services=["pt-master-0", "pt-worker-0"])
    own, master, worker = build_hosts(addresses, make_v1_pod("pt-worker-0"), peers)
    assert own[1:] == ("pt-worker-0",) and worker[0] == own[0]
    assert master[1:] == (
        "pt-master-0.team.svc.cluster.local",
        "pt-master-0.team.svc",
        "pt-master-0.team",
        "pt-master-0",
    )
    assert build_hosts(addresses, make_v1_pod("pt-master-0"), peers)[0] == (master[0], "pt-master-0")


def test_pods_of_a_v1_job_with_one_hostname_have_addresses_of_their_own() -> None:
    addresses = Addresses()
    first, second = (
        build_hosts(addresses, make_v1_pod(f"pt-worker-{index}", hostname="same"), GangPeers()) for index in (0, 1)
    )
    assert (first[0][1], second[0][1]) == ("same", "same")
    assert first[0][0] != second[0][0]


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(make_pod("a", **{JOBSET_UID: "js"}), "team/js", id="of a JobSet"),
        pytest.param(make_pod("a"), "team/job", id="of a headless Service"),
        pytest.param(make_pod("a", ""), "uid-a", id="alone"),
    ],
)
def test_a_gang_is_who_knows_each_other(pod: Object, want: str) -> None:
    assert get_gang(Pod(pod)) == want


def test_a_service_is_its_pods_and_short_only_in_its_own_namespace() -> None:
    service = {
        "metadata": {"name": "store", "namespace": "team"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": 8080}, {"port": 90}]},
    }
    pods = [(Pod(make_pod("a", app="x")), "10.244.0.5"), (Pod(make_pod("b", app="y")), "10.244.0.6")]
    full = ("store.team.svc.cluster.local", "store.team.svc", "store.team")
    assert build_service_lines([service], pods, "team") == [("10.244.0.5", *full, "store")]
    assert build_service_lines([service], pods, "other") == [("10.244.0.5", *full)]
    assert list_mapped_ports(service) == ["port 80 of Service store is not mapped: use 8080"]


def test_the_ways_out_are_relays_names_and_variables() -> None:
    ways = EgressRoutes("/server.json", upstream="http://proxy:3128")
    api, proxy = ways.build_relays()
    assert (api.address, api.port, api.server_file) == ("10.96.0.1", 443, "/server.json")
    assert ways.api == ("10.96.0.1", 443)
    assert (proxy.address, proxy.host, proxy.upstream) == ("10.96.0.2", "", "http://proxy:3128")
    assert ways.build_lines()[0][1] == "kubernetes.default.svc.cluster.local"
    variables = ways.build_variables([("10.244.0.2", "a-0.a.ns.svc.cluster.local", "a-0.a", "a-0")])
    assert variables["HTTPS_PROXY"] == "http://10.96.0.2:3128"
    assert {"a-0.a", "a-0", "kubernetes.default", "10.244.0.0/16"} <= set(variables["NO_PROXY"].split(","))
    # gRPC (TensorFlow, JAX) would send its ranks' traffic to a proxy that the lower-case variables name.
    assert not {"http_proxy", "https_proxy", "grpc_proxy"} & set(variables)


def test_without_egress_and_without_a_server_nothing_leads_out() -> None:
    ways = EgressRoutes(egress=False)
    assert (ways.build_relays(), ways.build_lines(), ways.build_variables([])) == ((), (), {})
