"""Takes out of API objects what no two runs share, so that upstream's and ours can be compared field by field.

Used on both sides: by `tools/import_golden.py` on what upstream's programs made, and by the harness on what ours make.
Masked: uids (replaced by whose they are, so a reference to the wrong object still shows), times, resource versions,
random parts of names, node names, cluster addresses, the host part of images, key material, and what only a kubelet
or the service-account admission adds. Empty `metadata` and `resources` go too: Go writes them, they say nothing.
Everything else stays.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

Object = dict[str, Any]
Captures = dict[str, list[Object]]
"""Moment of the run -> the objects seen then."""

TIME, UID, NODE, ADDRESS, SECRET, RANDOM = "<time>", "<uid>", "<node>", "<address>", "<secret>", "?????"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
# The alphabet of generated names. A Pod of an Indexed Job: JOB-INDEX-suffix.
_POD_SUFFIX = re.compile(r"(-\d+)-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9])")
_ASSIGNED = re.compile(r"^(Successfully assigned \S+ to )\S+$")
_NODE_COUNT = re.compile(r"\b0/\d+ nodes|\b\d+ (?=node\(s\)|Preemption|Insufficient)")
_HOST = re.compile(r"^[a-z0-9-]+\.[a-z0-9.-]+(?::\d+)?/")
_METADATA = ("resourceVersion", "managedFields", "selfLink", "uid", "creationTimestamp")
_TOKEN_VOLUME = "kube-api-access-"
_KUBELET_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")
_EMPTY = ("metadata", "resources")
_SERVED = {
    "Pod": (
        "dnsPolicy",
        "enableServiceLinks",
        "nodeName",
        "preemptionPolicy",
        "priority",
        "securityContext",
        "serviceAccount",
        "terminationGracePeriodSeconds",
        "tolerations",
    ),
    "Service": ("clusterIPs", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "type"),
}
_SERVED_CONTAINER = {
    "containers": ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"),
    # Controllers add init containers, with a pull policy.
    "initContainers": ("terminationMessagePath", "terminationMessagePolicy"),
}
_POD_STATUS = ("phase", "reason", "message", "qosClass")


def mask_captures(captures: Mapping[str, Sequence[Object]]) -> Captures:
    owners = _name_uids(obj for objects in captures.values() for obj in objects)
    return {moment: sorted(_mask_all(objects, owners), key=_order) for moment, objects in captures.items()}


def mask_events(events: Iterable[Object]) -> list[Object]:
    """One entry per kind of event about an object: (kind, name, type, reason) and its messages with their counts.

    How often a Warning is repeated depends on back-off and on when one looks, so those are counted as one.
    """
    found: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for event in events:
        about = event["involvedObject"]
        key = (about["kind"], mask_text(about["name"]), event["type"], event["reason"])
        message = mask_text(event.get("message", ""))
        messages = found.setdefault(key, {})
        seen = event.get("count") or (event.get("series") or {}).get("count") or 1
        messages[message] = 1 if event["type"] == "Warning" else messages.get(message, 0) + seen
    names = ("about", "name", "type", "reason")
    return [dict(zip(names, key, strict=True)) | {"messages": found[key]} for key in sorted(found)]


def drop_repetitions(events: Iterable[Object]) -> list[Object]:
    """Masked events, with counts of what was created and deleted only: training-operator repeats others at will."""
    return [
        event
        if event["reason"].startswith("Successful")
        else {**event, "messages": dict.fromkeys(event["messages"], 1)}
        for event in events
    ]


def mask_text(text: str, owners: Mapping[str, str] | None = None) -> str:
    text = _UID.sub(lambda match: (owners or {}).get(match[0], UID), text)
    text = _TIME.sub(TIME, text)
    text = _ASSIGNED.sub(rf"\1{NODE}", _mask_name(text))
    return _NODE_COUNT.sub(lambda match: "0/N nodes" if match[0].startswith("0/") else "N ", text)


def drop_counts(obj: Object) -> Object:
    """For pictures that were taken the moment the last Pod ran (`running` of 2.3): counts were on their way."""
    if obj["kind"] not in ("TrainJob", "JobSet", "Job"):
        return obj
    return {key: value for key, value in obj.items() if key != "status"}


def drop_served(obj: Object) -> Object:
    """Without what the API server fills in, for versions whose cases are about what a controller writes."""
    if obj["kind"] not in _SERVED:
        return obj
    spec = {key: value for key, value in obj["spec"].items() if key not in _SERVED[obj["kind"]]}
    for kind, served in _SERVED_CONTAINER.items():
        if kind in spec:
            spec[kind] = [
                {key: value for key, value in container.items() if key not in served} for container in spec[kind]
            ]
    return {**obj, "spec": spec}


def strip_runtime(runtime: Object) -> Object:
    """A runtime as a person would submit it."""
    kept = {key: runtime["metadata"][key] for key in ("name", "namespace", "labels") if key in runtime["metadata"]}
    return {**{key: runtime[key] for key in ("apiVersion", "kind", "spec")}, "metadata": kept}


def read_snapshot(text: str) -> Object:
    """The runtime in a snapshot ConfigMap: YAML from upstream, JSON from us."""
    runtime: Object = yaml.safe_load(text)
    return runtime


def _name_uids(objects: Iterable[Object]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for obj in objects:
        meta = obj["metadata"]
        if "uid" in meta:
            owners[meta["uid"]] = f"<uid of {obj['kind']} {_mask_name(meta['name'])}>"
    return owners


def _mask_name(name: str) -> str:
    return _POD_SUFFIX.sub(rf"\1-{RANDOM}", name)


def _order(obj: Object) -> tuple[str, str, str]:
    return (obj["kind"], obj["metadata"]["name"], repr(obj.get("status")))


def _mask_all(objects: Iterable[Object], owners: Mapping[str, str]) -> Iterable[Object]:
    for obj in objects:
        masked = copy.deepcopy(obj)
        if obj["kind"] in _MASKS:
            masked = _MASKS[obj["kind"]](masked)
        for name in _METADATA:
            masked["metadata"].pop(name, None)
        yield _mask_values(masked, owners)


def _mask_values(value: Any, owners: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        kept = {name: entry for name, entry in value.items() if entry != {} or name not in _EMPTY}
        return {name: _mask_values(entry, owners, name) for name, entry in kept.items()}
    if isinstance(value, list):
        return [_mask_values(entry, owners) for entry in value]
    if isinstance(value, str):
        return mask_text(_HOST.sub("", value) if key == "image" else value, owners)
    return value


def _mask_pod(pod: Object) -> Object:
    spec, status = pod["spec"], pod.get("status") or {}
    if "nodeName" in spec:
        spec["nodeName"] = NODE
    _drop_named(spec, "volumes", _TOKEN_VOLUME)
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            _drop_named(container, "volumeMounts", _TOKEN_VOLUME)
    kept: Object = {name: status[name] for name in _POD_STATUS if name in status}
    conditions = [entry for entry in status.get("conditions") or () if entry["type"] not in _KUBELET_CONDITIONS]
    # Of the scheduler's verdict only the bad news: kwok writes the good one itself, in its own form.
    conditions = [entry for entry in conditions if (entry["type"], entry["status"]) != ("PodScheduled", "True")]
    kept["conditions"] = [
        {name: entry[name] for name in ("type", "status", "reason", "message") if name in entry} for entry in conditions
    ]
    return {**pod, "status": kept}


def _drop_named(holder: Object, key: str, prefix: str) -> None:
    if key in holder:
        holder[key] = [entry for entry in holder[key] if not entry["name"].startswith(prefix)]
        if not holder[key]:
            del holder[key]


def _mask_secret(secret: Object) -> Object:
    return {**secret, "data": dict.fromkeys(secret.get("data") or {}, SECRET)}


def _mask_config_map(config_map: Object) -> Object:
    if config_map["metadata"]["name"].endswith("-runtime-snapshot"):
        data = config_map["data"]
        config_map["data"] = {**data, "runtime": strip_runtime(read_snapshot(data["runtime"]))}
    return config_map


def _mask_service(service: Object) -> Object:
    spec = service["spec"]
    if spec.get("clusterIP") not in (None, "None"):
        spec["clusterIP"], spec["clusterIPs"] = ADDRESS, [ADDRESS]
    return service


def _mask_claim(claim: Object) -> Object:
    """Binding a claim is the work of the cluster's storage."""
    annotations = claim["metadata"].get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if not key.startswith("pv.kubernetes.io/")}
    claim["metadata"]["annotations"] = kept
    if not kept:
        del claim["metadata"]["annotations"]
    claim["spec"].pop("volumeName", None)
    claim.pop("status", None)
    return claim


_MASKS = {
    "Pod": _mask_pod,
    "Secret": _mask_secret,
    "ConfigMap": _mask_config_map,
    "Service": _mask_service,
    "PersistentVolumeClaim": _mask_claim,
}
