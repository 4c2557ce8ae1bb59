"""Maintains this machine's Node object (capacity, labels, conditions, taints, GPUs) and its Lease.

`NodeKeeper` checks every ten seconds and writes only changes; heartbeats are as rare as upstream permits. It runs in
the control plane (`app.workloads`) beside the agent, on the Client protocol. What others put on the Node (labels,
taints, a cordon, additional resources) is left alone. A deleted Node is created again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from trainmaster.api.conditions import Condition, find_condition, is_true, list_conditions
from trainmaster.api.devices import Device, list_devices, list_leased, render_devices
from trainmaster.api.formats import quantity
from trainmaster.api.labels import DEVICES, ISOLATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.node_policy import NAME, NAMESPACE, NodePolicy, read_node_policy
from trainmaster.api.pods.requests import GPU
from trainmaster.api.reading import list_items, read_fields, read_status
from trainmaster.api.resources import CONFIG_MAPS, LEASES, NODES, PODS
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, PatchType
from trainmaster.engine.events import Recorder
from trainmaster.engine.plan import Note
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock, format_micro_time, format_time
from trainmaster.kit.scopes import Scope
from trainmaster.node.devices.gpus import FoundDevices, Inventory
from trainmaster.node.host.hardware import Hardware, NodeHealth, read_hardware
from trainmaster.node.host.pressure import MIB, PressureFinding, decide_thresholds, is_disk_short, judge, merge_taints
from trainmaster.node.status import ADDRESS
from trainmaster.version import __version__

log = logging.getLogger(__name__)

REPORTER = "trainmaster-node"
LEASE_NAMESPACE = "kube-node-lease"
LOOK_SECONDS = 10.0
LEASE_SECONDS, LEASE_LASTS = 30.0, 120
"""Upstream renews every 10 s because Pods are removed from a silent node; here they are not."""
HEARTBEAT_SECONDS = 300.0
DISK_SECONDS = 1.0
"""How often free disk space is checked; a disk can fill up fast."""
DISK_HOLD_SECONDS = 60.0
"""How long DiskPressure stays after the disk was short, so that evicted Pods do not fill it again immediately."""
DECLARED = "trainmaster.dev/declared-labels"
"""Annotation on the Node: the labels set by the policy, so that they are removed when the policy drops them."""
_OWN_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_KEPT_MEMORY = 100 * MIB


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What `app` decides about the Node; None means detect it."""

    name: str = "local"
    cpus: float | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    overcommit: float = 1.0
    """How many CPUs are offered to Pods for each that there is."""
    pods: int = 1000
    min_free_disk_mib: int = 1024
    labels: Mapping[str, str] = field(default_factory=dict)
    isolation: str = ""
    """The isolation level of Pods."""


async def register_node(client: Client, name: str, now: datetime) -> None:
    """Creates a Node for an agent without a keeper; an existing one is left alone."""
    hardware = read_hardware()
    node = build_node(NodeShape(name), hardware, None, (), NodePolicy(), now)
    try:
        await client.create(NODES, node)
    except AlreadyExists:
        return
    await client.patch(NODES, name, PatchType.MERGE, {"status": node["status"]}, subresource="status")


class NodeKeeper:
    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        shape: NodeShape,
        *,
        inventory: Inventory,
        hardware: Hardware,
        read_health: Callable[[], NodeHealth],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._shape = shape
        self._inventory = inventory
        self._hardware = hardware
        self._read_health = read_health
        self._leased_at: float | None = None
        self._heard_at = 0.0
        self._told: tuple[str, ...] = ()
        self._gpu_trouble = ""
        self._disk_short_at: float | None = None
        self._disk_said_short = False
        """Whether the Node reported DiskPressure at the last check."""
        self._is_gpu_held = False
        self.trouble = "the node has not been registered yet"
        """Why the Node object is not up to date; empty if it is."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NodeKeeper]:
        await self.sync()
        async with Scope("node.keeper") as scope:
            scope.spawn_forever(self._work(), name="node.keeper")
            yield self

    async def _work(self) -> None:
        while True:
            try:
                await self._wait_for_check()
                await self.sync()
            except (StatusError, OSError) as error:
                self.trouble = f"the Node object could not be written: {error}"
                log.warning("node not written", extra={"action": "node.unwritten", "error": str(error)})

    async def _wait_for_check(self) -> None:
        """Returns early when the disk becomes short, so that no new Pods are bound, and when a GPU may be free again,
        so that they are."""
        for _ in range(round(LOOK_SECONDS / DISK_SECONDS)):
            await self._clock.sleep(DISK_SECONDS)
            if self._is_disk_short(self._read_health()) and not self._disk_said_short:
                return
            if self._inventory.has_holder_ended() and self._is_gpu_held:
                return

    def note_short_disk(self) -> None:
        """Called after an eviction because of the disk, which may be over before the next check."""
        self._disk_short_at = self._clock.boot()

    def _is_disk_short(self, health: NodeHealth) -> bool:
        """Now, or a short while ago."""
        known = self._disk_short_at is not None
        if is_disk_short(health, self._shape.min_free_disk_mib * MIB, before=known):
            self._disk_short_at = self._clock.boot()
        elif self._disk_short_at is not None and self._clock.boot() - self._disk_short_at > DISK_HOLD_SECONDS:
            self._disk_short_at = None
        return self._disk_short_at is not None

    async def sync(self) -> None:
        """Reads the machine and writes what differs from the API."""
        old = await self._find(NODES, self._shape.name)
        policy = read_node_policy(await self._find(CONFIG_MAPS, NAME, NAMESPACE))
        declared = policy.gpus if policy.gpus is not None else self._shape.gpus
        before = list_devices(old) if old is not None and not self._has_restarted(old) else []
        loop = asyncio.get_running_loop()
        found = await self._check_leases(await loop.run_in_executor(None, self._inventory.read, declared, before))
        now = self._clock.now()
        health = self._read_health()
        was_short = self._is_disk_short(health)
        new = build_node(self._shape, self._hardware, old, found.devices, policy, now, health, disk_was_short=was_short)
        stored = await self._write(old, new)
        self._disk_said_short = was_short
        self._is_gpu_held = any(device.held for device in found.devices)
        await self._tell(old, stored, policy, found)
        await self._renew(now)
        self.trouble = ""

    async def _check_leases(self, found: FoundDevices) -> FoundDevices:
        """Marks GPUs that are used by Pods without a lease, which is possible where device files are not hidden."""
        held: dict[str, str] = {}
        for device, user in found.users:
            namespace, name, uid = user.pod or ("", "", "")
            pod = await self._find(PODS, name, namespace)
            if pod is None or pod["metadata"]["uid"] != uid or device not in list_leased(pod):
                held.setdefault(device, f"is used by {user.text}, which has no lease on it")
        devices = [
            replace(device, held=held[device.id]) if device.id in held and device.is_free else device
            for device in found.devices
        ]
        return replace(found, devices=tuple(devices))

    def _has_restarted(self, node: Object) -> bool:
        known = read_fields(node, "status", "nodeInfo").get("bootID")
        return bool(known) and known != self._hardware.boot_id

    async def _find(self, gvr: GVR, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(gvr, name, namespace)
        except NotFound:
            return None

    async def _write(self, old: Object | None, new: Object) -> Object:
        name = self._shape.name
        if old is None:
            old = await self._client.create(NODES, new)
        stored = old
        head = build_patch(old, new)
        if head:
            stored = await self._client.patch(NODES, name, PatchType.MERGE, head)
        beat = self._clock.boot()
        if _is_same_status(old, new) and beat - self._heard_at < HEARTBEAT_SECONDS:
            return stored
        self._heard_at = beat
        body = {"status": new["status"]}
        return await self._client.patch(NODES, name, PatchType.MERGE, body, subresource="status")

    async def _tell(self, old: Object | None, node: Object, policy: NodePolicy, found: FoundDevices) -> None:
        """Records events for the administrator."""
        problems = (*policy.problems, *([found.note] if found.note else ()))
        for text in problems:
            if text not in self._told:
                await self._record(node, "InvalidNodePolicy", f"{NAMESPACE}/{NAME}: {text}")
        self._told = problems
        if found.trouble and found.trouble != self._gpu_trouble:
            await self._record(node, "UnknownGPUs", f"the GPUs of this machine cannot be read: {found.trouble}")
        self._gpu_trouble = found.trouble
        before = {condition["type"]: condition["status"] for condition in list_conditions(old or {})}
        for condition in list_conditions(node):
            kind, status = condition["type"], condition["status"]
            if kind != "Ready" and status == "True" and before.get(kind) != "True":
                await self._record(node, f"NodeHas{kind}", condition["message"])
        known = {device.id: device for device in list_devices(old)} if old is not None else {}
        for device in found.devices:
            if device.unhealthy and not (device.id in known and known[device.id].unhealthy):
                text = f"GPU {device.index} ({device.id}): {device.unhealthy}"
                await self._record(node, "UnhealthyGPU", text)
                await self._tell_users(device.id, text)

    async def _tell_users(self, device: str, text: str) -> None:
        """Records the loss of a GPU on the Pods that have leased it. They are not stopped: some programs can go on."""
        selector = ListOptions(field_selector=f"spec.nodeName={self._shape.name}")
        for pod in (await self._client.list(PODS, "", selector)).items:
            if device in list_leased(pod) and not Pod(pod).is_over:
                await self._record(pod, "UnhealthyGPU", text)

    async def warn(self, reason: str, text: str) -> None:
        """Records an Event on the Node about something else for the administrator."""
        node = await self._find(NODES, self._shape.name)
        if node is not None:
            await self._record(node, reason, text)

    async def _record(self, node: Object, reason: str, text: str) -> None:
        await self._recorder.record(Note(node, reason, text, warning=True, action="Watching"), REPORTER)

    async def _renew(self, now: datetime) -> None:
        beat = self._clock.boot()
        if self._leased_at is not None and beat - self._leased_at < LEASE_SECONDS:
            return
        name = self._shape.name
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_LASTS, "renewTime": format_micro_time(now)}
        try:
            await self._client.patch(LEASES, name, PatchType.MERGE, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            meta = {"name": name, "namespace": LEASE_NAMESPACE}
            lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": spec}
            await self._client.create(LEASES, lease, LEASE_NAMESPACE)
        self._leased_at = beat


def build_node(
    shape: NodeShape,
    hardware: Hardware,
    old: Object | None,
    devices: tuple[Device, ...],
    policy: NodePolicy,
    now: datetime,
    health: NodeHealth | None = None,
    *,
    disk_was_short: bool = False,
) -> Object:
    """The desired Node, without what others may have put on it. Pure."""
    conditions = list_conditions(old or {})
    before = {kind: is_true(conditions, kind) for kind in _OWN_CONDITIONS}
    findings = []
    if health is not None:
        findings = judge(health, shape.min_free_disk_mib * MIB, before, disk_was_short=disk_was_short)
    annotations = {DEVICES: render_devices(devices), DECLARED: ",".join(sorted(policy.labels))}
    if shape.isolation:
        annotations[ISOLATION] = shape.isolation
    taints = merge_taints(list_items(old, "spec", "taints"), findings)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": shape.name,
            "labels": build_labels(shape, hardware, devices, policy),
            "annotations": annotations,
        },
        "spec": {"taints": taints} if taints else {},
        "status": {
            **_build_amounts(shape, hardware, devices, old, health),
            "conditions": _build_conditions(conditions, findings, now),
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": shape.name}],
            "nodeInfo": _build_info(hardware),
        },
    }


def build_labels(
    shape: NodeShape, hardware: Hardware, devices: tuple[Device, ...], policy: NodePolicy
) -> dict[str, str]:
    """Labels that cloud manifests select by. Settings override detected values, the policy overrides both."""
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/os": hardware.system,
        "kubernetes.io/arch": hardware.architecture,
        "beta.kubernetes.io/os": hardware.system,
        "beta.kubernetes.io/arch": hardware.architecture,
        "node.kubernetes.io/instance-type": "local",
        "topology.kubernetes.io/region": "local",
        "topology.kubernetes.io/zone": "local",
        "karpenter.sh/capacity-type": "on-demand",
        "node-role.kubernetes.io/control-plane": "",
    }
    if devices:
        labels |= {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(len(devices))}
        product = next((device.product for device in devices if device.product), "")
        memory = max(device.memory_mib for device in devices)
        labels |= {"nvidia.com/gpu.product": _make_value(product)} if product else {}
        labels |= {"nvidia.com/gpu.memory": str(memory)} if memory else {}
    return {**labels, **shape.labels, **policy.labels}


def _make_value(text: str) -> str:
    """Converts any text to a valid label value."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in text)
    return kept[:63].strip("-_.")


def _build_amounts(
    shape: NodeShape, hardware: Hardware, devices: tuple[Device, ...], old: Object | None, health: NodeHealth | None
) -> dict[str, dict[str, str]]:
    cpus = hardware.cpus_milli if shape.cpus is None else round(shape.cpus * 1000)
    memory = hardware.memory_bytes if shape.memory_mib is None else shape.memory_mib * MIB
    capacity = {"cpu": _render_cpu(cpus), "memory": f"{memory // 1024}Ki", "pods": str(shape.pods)}
    kept = _KEPT_MEMORY if shape.memory_mib is None else 0
    offered = _render_cpu(round(cpus * shape.overcommit))
    allocatable = {**capacity, "cpu": offered, "memory": f"{max(0, memory - kept) // 1024}Ki"}
    if health is not None:
        free = max(0, health.disk_bytes - decide_thresholds(health.disk_bytes, shape.min_free_disk_mib * MIB)[0])
        capacity["ephemeral-storage"] = f"{health.disk_bytes // 1024}Ki"
        allocatable["ephemeral-storage"] = f"{free // 1024}Ki"
    # Keep showing 0 after the last GPU is gone.
    if devices or GPU in read_fields(old, "status", "capacity"):
        capacity[GPU] = str(len(devices))
        allocatable[GPU] = str(sum(1 for device in devices if not device.unhealthy))
    # In the server's canonical form, so that equal values compare equal.
    return {
        "capacity": {name: quantity.canonical(text) for name, text in capacity.items()},
        "allocatable": {name: quantity.canonical(text) for name, text in allocatable.items()},
    }


def _build_info(hardware: Hardware) -> dict[str, str]:
    return {
        "architecture": hardware.architecture,
        "bootID": hardware.boot_id,
        "containerRuntimeVersion": f"process://{__version__}",
        "kernelVersion": hardware.kernel,
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{__version__}",
        "machineID": hardware.machine_id,
        "operatingSystem": hardware.system,
        "osImage": hardware.image,
        "systemUUID": hardware.machine_id,
    }


def _render_cpu(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _build_conditions(old: list[Condition], findings: list[PressureFinding], now: datetime) -> list[Condition]:
    wanted = [(finding.condition, finding.is_true, finding.reason, finding.message) for finding in findings]
    wanted.append(("Ready", True, "KubeletReady", "the node agent runs Pods as processes of this machine"))
    names = {entry[0] for entry in wanted}
    return [
        *(condition for condition in old if condition.get("type") not in names),
        *(_build_condition(old, *entry, now) for entry in wanted),
    ]


def _build_condition(
    old: list[Condition], kind: str, status: bool, reason: str, message: str, now: datetime
) -> Condition:
    text, moment = "True" if status else "False", format_time(now)
    before = find_condition(old, kind)
    since = before["lastTransitionTime"] if before is not None and before.get("status") == text else moment
    return {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": since,
    }


def build_patch(old: Object, new: Object) -> Object:
    """Changes to labels, annotations and taints; empty if there are none."""
    meta: Object = {}
    have = Node(old)
    want = new["metadata"]
    declared = str(have.annotations.get(DECLARED, "")).split(",")
    gone = [key for key in declared if key and key not in want["labels"]]
    labels = {key: value for key, value in want["labels"].items() if have.labels.get(key) != value}
    labels |= {key: None for key in gone if key in have.labels}
    annotations = {key: value for key, value in want["annotations"].items() if have.annotations.get(key) != value}
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    patch: Object = {"metadata": meta} if meta else {}
    taints = list_items(new, "spec", "taints")
    if list(taints) != list(have.taints):
        patch["spec"] = {"taints": taints or None}
    return patch


def _is_same_status(old: Object, new: Object) -> bool:
    """Ignores heartbeat times; disk and memory quantities do not change by themselves."""
    have = read_status(old)
    for key, value in new["status"].items():
        if key == "conditions":
            continue
        known = have.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            if any(known.get(name) != entry for name, entry in value.items()):
                return False
        elif known != value:
            return False
    pairs = zip(list_conditions(old), list_conditions(new), strict=False)
    same = all({**one, "lastHeartbeatTime": ""} == {**other, "lastHeartbeatTime": ""} for one, other in pairs)
    return same and len(list_conditions(old)) == len(list_conditions(new))
