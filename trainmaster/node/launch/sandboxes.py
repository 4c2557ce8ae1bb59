"""Builds the shim's spec of what all containers of a Pod share. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.reading import list_items
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import Prepared
from trainmaster.node.launch.limits import build_pod_limits
from trainmaster.node.launch.mounts import get_shm_bytes
from trainmaster.shim.protocol import HOST_NETWORK, OWN_NETWORK, PLAIN, Relay, ResourceLimits, SandboxSpec

_LONGEST_HOSTNAME = 63


def build_sandbox(
    pod: Pod,
    prepared: Prepared,
    *,
    hosts: Sequence[tuple[str, ...]] = (),
    prefix: int = 16,
    cgroup: str = "",
    hide: Sequence[str] = (),
    relays: Sequence[Relay] = (),
    segment: str = "",
) -> SandboxSpec:
    """`hosts` are the lines of the Pod and its peers, followed by hostAliases.

    `hide` are directories of this machine that Pods must not see, above all the server's home; `relays` lead out of the
    Pod's network (`node.network.addresses` builds them), or, on the machine's own network, to the server.
    """
    site = prepared.site
    hostname, domain = build_names(pod)
    shares_host = site.level == PLAIN or pod.uses_host_network
    return SandboxSpec(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        hostname=hostname,
        domain=domain,
        level=site.level,
        network=HOST_NETWORK if shares_host else OWN_NETWORK,
        address=site.address,
        prefix=prefix,
        hosts=(*hosts, *build_aliases(pod)),
        shm_bytes=get_shm_bytes(pod, prepared),
        cgroup=cgroup,
        limits=build_pod_limits(pod, prepared.budget.pod_pids if prepared.budget is not None else 0),
        tenant_cgroup=(
            name_tenant_group(cgroup.partition("-")[0], pod.namespace) if cgroup and prepared.budget else ""
        ),
        tenant_limits=prepared.budget.limits if prepared.budget is not None else ResourceLimits(),
        hide=tuple(hide),
        relays=tuple(relays),
        segment=segment,
        gang_socket=prepared.gang_socket,
    )


def name_tenant_group(home: str, namespace: str) -> str:
    """`home`: the prefix of this home's group names."""
    return f"{home}-tenant-{namespace}"


def build_aliases(pod: Pod) -> list[tuple[str, ...]]:
    return [(entry["ip"], *list_items(entry, "hostnames")) for entry in list_items(pod.spec, "hostAliases")]


def build_names(pod: Pod) -> tuple[str, str]:
    """Hostname and domain. A Pod name that is too long for a hostname is cut."""
    hostname = pod.spec.get("hostname") or pod.name[:_LONGEST_HOSTNAME].rstrip("-.")
    domain = f"{pod.subdomain}.{pod.namespace}.svc.cluster.local" if pod.subdomain else ""
    if pod.spec.get("setHostnameAsFQDN") and domain:
        hostname = f"{hostname}.{domain}"
    return hostname, domain
