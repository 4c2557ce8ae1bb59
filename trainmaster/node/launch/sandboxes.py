"""What all containers of a Pod share, as the shim's spec. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Object
from trainmaster.node.launch.contract import Prepared
from trainmaster.node.launch.limits import build_pod_limits
from trainmaster.node.launch.mounts import find_shm_bytes
from trainmaster.shim.protocol import HOST_NETWORK, OWN_NETWORK, PLAIN, Relay, ResourceLimits, SandboxSpec

_LONGEST_HOSTNAME = 63


def build_sandbox(
    pod: Object,
    prepared: Prepared,
    *,
    hosts: Sequence[tuple[str, ...]] = (),
    prefix: int = 16,
    cgroup: str = "",
    hide: Sequence[str] = (),
    relays: Sequence[Relay] = (),
    segment: str = "",
) -> SandboxSpec:
    """`hosts` are the lines of the Pod itself and its peers; those of hostAliases are put behind them.

    `hide` are directories of this machine that Pods must not see, above all the server's home; `relays` lead out of
    the Pod's network (`trainmaster/node/network.py` builds them), or on the machine's own to where the server is now.
    """
    meta, spec, site = pod["metadata"], pod["spec"], prepared.site
    hostname, domain = build_names(pod)
    shares_host = site.level == PLAIN or bool(spec.get("hostNetwork"))
    return SandboxSpec(
        uid=meta["uid"],
        name=meta["name"],
        namespace=meta["namespace"],
        hostname=hostname,
        domain=domain,
        level=site.level,
        network=HOST_NETWORK if shares_host else OWN_NETWORK,
        address=site.address,
        prefix=prefix,
        hosts=(*hosts, *build_aliases(pod)),
        shm_bytes=find_shm_bytes(pod, prepared),
        cgroup=cgroup,
        limits=build_pod_limits(pod, prepared.budget.pod_pids if prepared.budget is not None else 0),
        tenant_cgroup=(
            name_tenant_group(cgroup.partition("-")[0], meta["namespace"]) if cgroup and prepared.budget else ""
        ),
        tenant_limits=prepared.budget.limits if prepared.budget is not None else ResourceLimits(),
        hide=tuple(hide),
        relays=tuple(relays),
        segment=segment,
    )


def name_tenant_group(home: str, namespace: str) -> str:
    """`home`: what the names of this home's groups begin with."""
    return f"{home}-tenant-{namespace}"


def build_aliases(pod: Object) -> list[tuple[str, ...]]:
    return [(entry["ip"], *(entry.get("hostnames") or ())) for entry in pod["spec"].get("hostAliases") or ()]


def build_names(pod: Object) -> tuple[str, str]:
    """Hostname and domain. The name of a Pod may be longer than a hostname can be; then its beginning is taken."""
    spec, meta = pod["spec"], pod["metadata"]
    hostname = spec.get("hostname") or meta["name"][:_LONGEST_HOSTNAME].rstrip("-.")
    subdomain = spec.get("subdomain")
    domain = f"{subdomain}.{meta['namespace']}.svc.cluster.local" if subdomain else ""
    if spec.get("setHostnameAsFQDN") and domain:
        hostname = f"{hostname}.{domain}"
    return hostname, domain
