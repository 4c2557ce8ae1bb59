"""Formats fields of the Pod and resources of its containers, for `valueFrom` and downwardAPI volumes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import CONFIG_ERROR, LaunchError, Site

_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']*)'\]$")


def read_field(pod: Pod, path: str, site: Site) -> str:
    spec = pod.spec
    match = _SUBSCRIPT.match(path)
    if match:
        return str(read_fields(pod.meta, match.group(1)).get(match.group(2), ""))
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": site.host_address,
        "status.hostIPs": site.host_address,
        "status.podIP": site.address,
        "status.podIPs": site.address,
    }
    if path in known:
        return str(known[path])
    if path in ("metadata.labels", "metadata.annotations"):
        return _format_map(read_fields(pod.meta, path.partition(".")[2]))
    raise LaunchError(CONFIG_ERROR, f"unsupported fieldPath: {path}")


def _format_map(values: Mapping[str, str]) -> str:
    """One `key="value"` per line, sorted, as in files of a downwardAPI volume."""
    return "\n".join(f"{key}={_quote(values[key])}" for key in sorted(values))


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def read_resource(pod: Pod, container: Fields, source: Fields, allocatable: Fields) -> str:
    """`limits.cpu` etc., divided by the divisor and rounded up. If a limit is not set, the node's capacity is used."""
    if name := source.get("containerName"):
        found = [entry for entry in pod.all_containers if entry["name"] == name]
        if not found:
            raise LaunchError(CONFIG_ERROR, f'container "{name}" not found')
        container = found[0]
    kind, _, resource = str(source["resource"]).partition(".")
    given = read_fields(container, "resources", kind).get(resource)
    if given is None:
        given = allocatable.get(resource, 0) if kind == "limits" else 0
    return str(_divide(quantity.parse(given), source.get("divisor") or "1", resource))


def _divide(amount: Fraction, divisor: str | int, resource: str) -> int:
    step = quantity.parse(divisor) or Fraction(1)
    steps = amount / step
    return -(-steps.numerator // steps.denominator)
