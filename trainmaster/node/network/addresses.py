"""Addresses and names of Pods on the switch, and the content of each Pod's /etc/hosts.

An address belongs to (gang, hostname) from the first time that either the Pod itself or a peer refers to it, until the
gang's last Pod is gone. So a gang's hosts lines are complete before its first process starts, and stay valid when a
member restarts. Leases are in memory and are rebuilt from Pod directories (`restore`).

Everything except the leases is pure. At the plain level there is one address for all, and no names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.v1jobs.replicas import build_pod_name
from trainmaster.api.workloads import read_gang, read_v1_gang
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.node.launch.sandboxes import build_names
from trainmaster.shim.protocol import LONGEST_SEGMENT, Relay
from trainmaster.shim.sandbox.egress import INTERNET
from trainmaster.shim.sandbox.egress import NONE as NO_EGRESS

POD_NETWORK = "10.244.0.0/16"
"""The switch's network. It is invisible outside the Pods, so it cannot collide with the machine's networks."""
API_ADDRESS, API_PORT = "10.96.0.1", 443
"""The address of the Service `kubernetes` on clusters; here a relay to the API server, on each Pod's loopback."""
PROXY_ADDRESS, PROXY_PORT = "10.96.0.2", 3128
CLUSTER_DOMAIN = "svc.cluster.local"
_MOST_DIRECT = 64
"""How many lines of hosts, and how many Services, NO_PROXY lists."""

Line = tuple[str, ...]
"""An address and its names."""


class GangPeers(NamedTuple):
    """The members of a gang, including those that do not run yet."""

    pods: Sequence[tuple[str, str]] = ()
    """(hostname, subdomain)."""
    services: Sequence[str] = ()
    """Of a v1 job: each has the name of its Pod."""


class AddressesExhausted(Exception):
    """More Pods than the network has addresses."""


@dataclass(slots=True)
class Addresses:
    """Leases on the Pods' network, handed out in turn so that an address is not reused immediately."""

    network: str = POD_NETWORK
    _leased: dict[tuple[str, str], str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _last: int = 1

    @property
    def prefix(self) -> int:
        return ipaddress.ip_network(self.network).prefixlen

    def lease(self, gang: str, hostname: str) -> str:
        key = (gang, hostname)
        if key not in self._leased:
            self._leased[key] = self._choose()
        return self._leased[key]

    def restore(self, gang: str, hostname: str, address: str) -> None:
        """An address from a Pod directory takes precedence over later decisions."""
        self._leased[gang, hostname] = address
        self._taken.add(address)
        number = int(ipaddress.ip_address(address)) - int(ipaddress.ip_network(self.network).network_address)
        self._last = max(self._last, number)

    def release(self, gang: str) -> None:
        """Called when the last Pod of the gang is gone."""
        for key in [key for key in self._leased if key[0] == gang]:
            self._taken.discard(self._leased.pop(key))

    def _choose(self) -> str:
        network = ipaddress.ip_network(self.network)
        size = network.num_addresses
        for step in range(1, size):
            number = (self._last + step) % size
            address = str(network.network_address + number)
            # The network address, the switch's and the broadcast address are reserved.
            if 1 < number < size - 1 and address not in self._taken:
                self._taken.add(address)
                self._last = number
                return address
        raise AddressesExhausted(f"all addresses of {self.network} are taken")


def get_gang(pod: Pod) -> str:
    """Pods that know each other by name: those of a JobSet or a v1 job, else of a headless Service, else the Pod alone.
    Never Pods of different namespaces."""
    gang = read_gang(pod.raw) or read_v1_gang(pod.raw)
    if gang:
        return gang
    return f"{pod.namespace}/{pod.subdomain}" if pod.subdomain else pod.uid


def get_member(pod: Pod) -> str:
    """The name under which the gang leases the Pod's address: its hostname, or in a v1 job its own name, because a
    template may give all Pods the same hostname."""
    return pod.name if read_v1_gang(pod.raw) else build_names(pod)[0].partition(".")[0]


def build_segment(owner: ObjectModel) -> str:
    """Derived from the owner's uid, because names could be chosen to collide."""
    return owner.uid.replace("-", "")[:LONGEST_SEGMENT]


def list_peer_names(jobset: JobSet) -> list[tuple[str, str]]:
    """(hostname, subdomain) of every Pod that the JobSet will create."""
    name, subdomain = jobset.name, jobset.subdomain
    found = []
    for job in jobset.replicated_jobs:
        inner = read_fields(job, "template", "spec")
        pods = inner.get("parallelism", 1) if inner.get("completions") is None else inner["completions"]
        for index in range(job.get("replicas", 1)):
            found += [(f"{name}-{job['name']}-{index}-{rank}", subdomain) for rank in range(pods)]
    return found


def list_v1_names(job: V1Job) -> list[str]:
    """The Services of a v1 job, each with the name of its Pod; in a kind without Services there are none."""
    if not job.framework.has_services:
        return []
    replicas = job.replicas.values()
    return [build_pod_name(job.name, one, index) for one in replicas for index in range(one.count)]


def build_hosts(addresses: Addresses, pod: Pod, peers: GangPeers) -> tuple[Line, ...]:
    """The Pod's own line first, because its fully qualified name must be the first name of its own address."""
    namespace, gang = pod.namespace, get_gang(pod)
    hostname, domain = build_names(pod)
    own = (hostname.partition(".")[0], domain.partition(".")[0])
    members = {own: get_member(pod)} | {peer: peer[0] for peer in peers.pods if peer != own}
    lines = [_build_line(addresses.lease(gang, name), host, sub, namespace) for (host, sub), name in members.items()]
    services = [(sub, name) for (_, sub), name in members.items() if sub] + [(name, name) for name in peers.services]
    lines += [
        (addresses.lease(gang, name), *build_service_names(service, namespace, namespace)) for service, name in services
    ]
    return tuple(lines)


def _build_line(address: str, hostname: str, subdomain: str, namespace: str) -> Line:
    if not subdomain:
        return (address, hostname)
    short = f"{hostname}.{subdomain}"
    full = [f"{short}.{namespace}.{CLUSTER_DOMAIN}", f"{short}.{namespace}.svc", f"{short}.{namespace}"]
    return (address, *full, short, hostname)


def build_service_names(name: str, namespace: str, seen_from: str) -> Line:
    """Including those that a cluster's DNS would find through search domains."""
    full = (f"{name}.{namespace}.{CLUSTER_DOMAIN}", f"{name}.{namespace}.svc", f"{name}.{namespace}")
    return (*full, name) if namespace == seen_from else full


def build_service_lines(services: Iterable[Object], pods: Sequence[tuple[Pod, str]], seen_from: str) -> list[Line]:
    """Services with a selector resolve to their Pods' addresses; there is no virtual address and no port mapping."""
    lines = []
    for service in services:
        meta, selector = service["metadata"], read_fields(service, "spec", "selector")
        names = build_service_names(meta["name"], meta["namespace"], seen_from)
        for pod, address in pods if selector else ():
            if _selects(meta["namespace"], selector, pod):
                lines += [*_build_member(pod, address, meta["name"]), (address, *names)]
    return lines


def _build_member(pod: Pod, address: str, service: str) -> list[Line]:
    """The Pod's name under its headless Service; its bare hostname is not visible to others."""
    hostname = pod.spec.get("hostname")
    if not hostname or pod.subdomain != service:
        return []
    return [_build_line(address, hostname, service, pod.namespace)[:-1]]


def _selects(namespace: str, selector: Mapping[str, str], pod: Pod) -> bool:
    labels = pod.labels
    return pod.namespace == namespace and all(labels.get(k) == v for k, v in selector.items())


def list_mapped_ports(service: Object) -> list[str]:
    """Descriptions of ports that cannot be reached under the Service's own number here; for an event."""
    found = []
    for port in list_items(service, "spec", "ports"):
        target = port.get("targetPort", port["port"])
        if target != port["port"]:
            found.append(f"port {port['port']} of Service {service['metadata']['name']} is not mapped: use {target}")
    return found


@dataclass(frozen=True, slots=True)
class EgressRoutes:
    """What leads out of a Pod's own network."""

    server_file: str = ""
    """The file that says where the API server listens now (`server.json` of the home); empty if there is none."""
    egress: bool = True
    upstream: str = ""
    """The machine's own proxy, if it has one."""
    tenant_egress: str = INTERNET
    """What the proxy may connect to for Pods of tenants (`shim.sandbox.egress`); "none" removes the proxy."""
    tenant_allow: tuple[str, ...] = ()
    """Additional destinations that the owner has allowed for them."""

    @property
    def api(self) -> tuple[str, int] | None:
        """The API server's address for Pods."""
        return (API_ADDRESS, API_PORT) if self.server_file else None

    def has_proxy(self, *, tenant: bool) -> bool:
        return self.egress and not (tenant and self.tenant_egress == NO_EGRESS and not self.tenant_allow)

    def build_relays(self, *, tenant: bool = False) -> tuple[Relay, ...]:
        relays = []
        if self.server_file:
            relays.append(Relay(API_ADDRESS, API_PORT, server_file=self.server_file))
        if self.has_proxy(tenant=tenant):
            reach, allow = (self.tenant_egress, self.tenant_allow) if tenant else ("", ())
            relays.append(Relay(PROXY_ADDRESS, PROXY_PORT, upstream=self.upstream, reach=reach, allow=allow))
        return tuple(relays)

    def build_lines(self) -> tuple[Line, ...]:
        if not self.server_file:
            return ()
        return ((API_ADDRESS, *build_service_names("kubernetes", "default", "default")),)

    def build_variables(
        self, hosts: Sequence[Line], services: Sequence[str] = (), *, tenant: bool = False
    ) -> dict[str, str]:
        """For pip, curl, git etc. Upper case only: gRPC reads the lower-case names, and must not. The Pod's own address
        is listed, because some clients do not know networks."""
        if not self.has_proxy(tenant=tenant):
            return {}
        proxy = f"http://{PROXY_ADDRESS}:{PROXY_PORT}"
        direct = ["localhost", "127.0.0.1", "::1", API_ADDRESS, POD_NETWORK, ".svc", ".cluster.local"]
        direct += [line[0] for line in hosts[:1]]
        lines = (*self.build_lines(), *hosts[:_MOST_DIRECT])
        names = [name for line in lines for name in line[1:] if name.count(".") < 2]
        direct += dict.fromkeys([*names, *services[:_MOST_DIRECT]])
        skipped = ",".join(direct)
        return {
            "HTTP_PROXY": proxy,
            "HTTPS_PROXY": proxy,
            "ALL_PROXY": proxy,
            "NO_PROXY": skipped,
            "no_proxy": skipped,
        }
