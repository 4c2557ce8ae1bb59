"""The defaults a server fills into a Pod spec, as clients read them back.

`default_spec` is for Pods and for the templates inside Jobs; `default_pod` adds what only Pods themselves get. All
functions change the spec in place and are idempotent. As upstream, an empty text counts as absent where Go has no
pointer. What admission adds (service account, tolerations, priority) is not here.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.meta import Object

_MODE = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    default_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in all_containers(spec):
        resources = container["resources"]
        if "limits" in resources:
            # A limit is also the request, for resources that ask for nothing else.
            resources["requests"] = dict(resources["limits"]) | (resources.get("requests") or {})


def default_spec(spec: Object) -> None:
    spec["restartPolicy"] = spec.get("restartPolicy") or "Always"
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec["dnsPolicy"] = spec.get("dnsPolicy") or "ClusterFirst"
    spec.setdefault("securityContext", {})
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        # Two spellings of one field.
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in all_containers(spec):
        default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("maxSkew", 0)


def all_containers(spec: Object) -> list[Object]:
    """Init containers, containers and ephemeral containers, in that order."""
    found: list[Object] = []
    for name in ("initContainers", "containers", "ephemeralContainers"):
        if listed := spec.get(name):
            found += listed
    return found


def default_container(container: Object, *, host_network: bool = False) -> None:
    container.setdefault("resources", {})
    container["terminationMessagePath"] = container.get("terminationMessagePath") or "/dev/termination-log"
    container["terminationMessagePolicy"] = container.get("terminationMessagePolicy") or "File"
    if not container.get("imagePullPolicy") and container.get("image"):
        container["imagePullPolicy"] = "Always" if is_latest(container["image"]) else "IfNotPresent"
    for port in container.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if host_network and "hostPort" not in port and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _default_references(source)
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            _default_probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and "httpGet" in hook:
            _default_http(hook["httpGet"])


def is_latest(image: str) -> bool:
    """Whether an image name means `latest`: no tag and no digest, or that very tag."""
    name, _, digest = image.partition("@")
    if digest:
        return False
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")


def _default_references(source: Object) -> None:
    if (reference := source.get("fieldRef")) is not None:
        reference["apiVersion"] = reference.get("apiVersion") or "v1"
    if (reference := source.get("resourceFieldRef")) is not None:
        reference.setdefault("divisor", "0")


def _default_probe(probe: Object) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(name):
            probe[name] = value
    if "httpGet" in probe:
        _default_http(probe["httpGet"])
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_http(action: Object) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


def default_volume(volume: Object) -> None:
    if not volume or list(volume) == ["name"]:
        volume["emptyDir"] = {}
        return
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", _MODE)
            _default_items(source)
    if (source := volume.get("projected")) is not None:
        for part in source.get("sources") or ():
            _default_projection(part)
    if (source := volume.get("hostPath")) is not None:
        source.setdefault("type", "")
    if (source := volume.get("ephemeral")) is not None:
        template = source.get("volumeClaimTemplate")
        if template is not None:
            template.setdefault("metadata", {})
            template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_projection(part: Object) -> None:
    if (token := part.get("serviceAccountToken")) is not None:
        token.setdefault("expirationSeconds", 3600)
    if (downward := part.get("downwardAPI")) is not None:
        _default_items(downward)


def _default_items(source: Any) -> None:
    for item in source.get("items") or ():
        _default_references(item)
