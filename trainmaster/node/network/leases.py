"""Network resources of Pods: addresses, names and ports of a gang, leased while it has Pods and rebuilt from Pod
directories.

At the plain level all Pods share the machine's loopback address, and rendezvous ports are leased per gang. At the other
levels each Pod has its own address, and its hosts file has the names of all members before it starts.

A Pod that shares the machine's network, at the plain level or with `hostNetwork`, reaches the API server at its own
loopback port: its shim relays to wherever the server listens at that moment, so the server may restart on another port.
"""

from __future__ import annotations

import functools
import hashlib
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOB_SETS, NAMESPACES
from trainmaster.api.status import NotFound
from trainmaster.api.tenancy import is_tenant
from trainmaster.api.workloads import build_gang, read_v1_gang
from trainmaster.client.contract import Client
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import MODELS
from trainmaster.node.launch.contract import LOOPBACK, Prepared, Site
from trainmaster.node.launch.sandboxes import build_aliases, build_sandbox
from trainmaster.node.network.addresses import (
    Addresses,
    EgressRoutes,
    GangPeers,
    Line,
    build_hosts,
    build_segment,
    get_gang,
    get_member,
    list_peer_names,
    list_v1_names,
)
from trainmaster.node.network.ports import AskedPort, PortLeases, choose_free
from trainmaster.node.shims.pod_directory import FoundPod
from trainmaster.node.workloads import Workloads
from trainmaster.shim.protocol import HOST_NETWORK, OWN_NETWORK, PLAIN, Relay, SandboxSpec, write_whole

_PORTS = "ports.json"
V1_MODELS = {model.framework.kind: model for model in MODELS}


@dataclass(slots=True)
class NetworkLeases:
    root: Path
    client: Client
    workloads: Workloads
    level: str = PLAIN
    egress_routes: EgressRoutes = field(default_factory=EgressRoutes)
    hide: tuple[str, ...] = ()
    services: dict[str, tuple[Line, ...]] = field(default_factory=dict)
    """By namespace: hosts lines of its Services (maintained by `service_names`)."""
    followed: dict[str, dict[str, Object]] = field(default_factory=dict)
    """By namespace and name: Services whose names are in hosts files (maintained by `service_names`)."""
    _given: dict[str, tuple[Line, ...]] = field(default_factory=dict)
    """The lines that a Pod has, by uid."""
    _ports: PortLeases = field(default_factory=PortLeases)
    _api_ports: dict[str, int] = field(default_factory=dict)
    """By uid of a Pod on the machine's network: the port of its relay to the API server; 0 if it has none."""
    _addresses: Addresses = field(default_factory=Addresses)
    _members: dict[str, set[str]] = field(default_factory=dict)
    _peers: dict[str, GangPeers] = field(default_factory=dict)
    _segments: dict[str, str] = field(default_factory=dict)
    _home: str = field(init=False)
    """The prefix of control group names: another home on this machine may have a Pod with the same uid (a restored
    copy, a test)."""

    def __post_init__(self) -> None:
        self._home = name_home(self.root)

    def restore(self, pod: Pod, found: FoundPod) -> None:
        """Restores the leases recorded in the Pod's directory."""
        gang, uid = get_gang(pod), pod.uid
        self._members.setdefault(gang, set()).add(uid)
        for asked, leased in self._read_ports(uid).items():
            self._ports.restore(gang, asked, leased)
        if found.pod is not None and found.pod.network == HOST_NETWORK:
            self._api_ports[uid] = next((relay.port for relay in found.pod.relays), 0)
        if found.pod is not None and found.pod.network == OWN_NETWORK:
            self._addresses.restore(gang, get_member(pod), found.pod.address)

    async def build_site(self, pod: Pod, variables: Mapping[str, str]) -> Site:
        gang, uid = get_gang(pod), pod.uid
        directory = str(self.root / uid)
        self._members.setdefault(gang, set()).add(uid)
        if self.level == PLAIN:
            lease = functools.partial(self._ports.lease, gang)
            return Site(directory, lease_port=lease, api=self._find_api(uid), variables=variables)
        if pod.uses_host_network:
            return Site(directory, self.level, api=self._find_api(uid), variables=variables)
        hosts = await self._build_hosts(pod)
        is_tenants = bool(await self.find_segment(pod))
        proxied = self.egress_routes.build_variables(hosts, self._list_service_names(pod), tenant=is_tenants)
        return Site(
            directory, self.level, address=hosts[0][0], api=self.egress_routes.api, variables={**proxied, **variables}
        )

    def _list_service_names(self, pod: Pod) -> list[str]:
        """Of the Pod's namespace, those of its own job first."""
        gang = read_v1_gang(pod.raw)
        own: list[str] = []
        others: list[str] = []
        for name, service in self.followed.get(pod.namespace, {}).items():
            (own if gang and read_v1_gang(service) == gang else others).append(name)
        return [*own, *others]

    def _find_api(self, uid: str) -> tuple[str, int] | None:
        """On the machine's own network: the Pod's relay."""
        if not self.egress_routes.server_file:
            return None
        if uid not in self._api_ports:
            self._api_ports[uid] = choose_free(taken=self._api_ports.values())
        port = self._api_ports[uid]
        return (LOOPBACK, port) if port else self._find_server()

    def _find_server(self) -> tuple[str, int] | None:
        """Where it listens now, for a Pod whose shim was started by an earlier version."""
        try:
            raw = orjson.loads(Path(self.egress_routes.server_file).read_bytes())
        except (OSError, ValueError):
            return None
        found = urllib.parse.urlsplit(read_text(raw, "server"))
        return (found.hostname, found.port) if found.hostname and found.port else None

    def _build_host_relays(self, pod: Pod) -> tuple[Relay, ...]:
        port = self._api_ports.get(pod.uid, 0)
        return (Relay(LOOPBACK, port, server_file=self.egress_routes.server_file),) if port else ()

    async def build_sandbox(self, pod: Pod, prepared: Prepared) -> SandboxSpec:
        self._write_ports(pod)
        group = f"{self._home}-{pod.uid}"
        if self.level == PLAIN:
            return build_sandbox(pod, prepared, cgroup=group, relays=self._build_host_relays(pod))
        if pod.uses_host_network:
            relays = self._build_host_relays(pod)
            return build_sandbox(pod, prepared, cgroup=group, hide=self.hide, relays=relays)
        hosts = await self._build_all_hosts(pod)
        self.note_given(pod)
        segment = await self.find_segment(pod)
        relays = self.egress_routes.build_relays(tenant=bool(segment))
        return build_sandbox(
            pod,
            prepared,
            hosts=hosts,
            prefix=self._addresses.prefix,
            cgroup=group,
            hide=self.hide,
            relays=relays,
            segment=segment,
        )

    async def find_segment(self, pod: Pod) -> str:
        """The Pod's segment of the switch: in a tenant's namespace its own; otherwise ""."""
        gang, name = get_gang(pod), pod.namespace
        if gang not in self._segments:
            try:
                namespace = await self.client.get(NAMESPACES, name)
            except NotFound:
                # The namespace is gone: the Pod is terminating, and isolated until then.
                self._segments[gang] = build_segment(pod)
            else:
                self._segments[gang] = build_segment(ObjectModel(namespace)) if is_tenant(namespace) else ""
        return self._segments[gang]

    async def _build_all_hosts(self, pod: Pod) -> tuple[Line, ...]:
        own = await self._build_hosts(pod)
        return (*own, *self.egress_routes.build_lines(), *self.services.get(pod.namespace, ()))

    async def build_lines(self, pod: Pod) -> tuple[Line, ...]:
        """The current content of the Pod's hosts file."""
        return (*await self._build_all_hosts(pod), *build_aliases(pod))

    def note_given(self, pod: Pod, *, known: bool = True) -> None:
        """Records that the Pod has the current lines, or that its lines are unknown."""
        self._given.pop(pod.uid, None)
        if known:
            self._given[pod.uid] = self.services.get(pod.namespace, ())

    def is_current(self, pod: Pod) -> bool:
        """Whether the Pod is known to have its namespace's current Service lines."""
        given = self._given.get(pod.uid)
        return given is not None and given == self.services.get(pod.namespace, ())

    def find_address(self, pod: Pod) -> str:
        """The Pod's address as shown in its status."""
        if self.level == PLAIN or pod.uses_host_network:
            return LOOPBACK
        return self._addresses.lease(get_gang(pod), get_member(pod))

    def release(self, pod: Pod) -> None:
        """Releases everything of the gang with its last Pod."""
        gang = get_gang(pod)
        self._given.pop(pod.uid, None)
        self._api_ports.pop(pod.uid, None)
        members = self._members.get(gang, set())
        members.discard(pod.uid)
        if not members:
            self._members.pop(gang, None)
            self._peers.pop(gang, None)
            self._segments.pop(gang, None)
            self._ports.release(gang)
            self._addresses.release(gang)

    async def _build_hosts(self, pod: Pod) -> tuple[Line, ...]:
        gang = get_gang(pod)
        if gang not in self._peers:
            self._peers[gang] = await self._list_peers(pod)
        return build_hosts(self._addresses, pod, self._peers[gang])

    async def _list_peers(self, pod: Pod) -> GangPeers:
        """All members of the gang, including future ones; a single Pod has none."""
        workload = await self.workloads.resolve(pod.raw)
        if not workload.gang or build_gang(workload.namespace, workload.gang) != get_gang(pod):
            return GangPeers()
        model = V1_MODELS.get(workload.kind)
        try:
            found = await self.client.get(model.gvr if model else JOB_SETS, workload.gang_name, workload.namespace)
        except NotFound:
            return GangPeers()
        return GangPeers(services=list_v1_names(model(found))) if model else GangPeers(list_peer_names(JobSet(found)))

    def _write_ports(self, pod: Pod) -> None:
        ports = self._ports.list_leases(get_gang(pod))
        if ports:
            path = self.root / pod.uid / _PORTS
            content = {f"{host}:{asked}" if host else str(asked): leased for (host, asked), leased in ports.items()}
            write_whole(os.fspath(path), orjson.dumps(content))

    def _read_ports(self, uid: str) -> dict[AskedPort, int]:
        try:
            raw = orjson.loads((self.root / uid / _PORTS).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        named = ((key.rpartition(":"), leased) for key, leased in raw.items())
        return {(host, int(asked)): int(leased) for (host, _, asked), leased in named}


def name_home(root: Path) -> str:
    """The prefix of this home's control group names. `root` contains its Pod directories."""
    return hashlib.sha256(os.fspath(root.resolve()).encode()).hexdigest()[:8]
