"""Shows the parts of the control plane in `kubeflow-system`, each as a Deployment with one Pod, as on a cluster.

Both show whether the part is ready, or why not. The Pods are mirror Pods (like those of static Pods): the scheduler
and the node ignore them, and a deleted one is created again. An object is written only when its state changes; checking
takes a few function calls every few seconds.

A start changes all Pods, because they show when they started. If they exist already this is delayed a little, so that a
job that caused the start comes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import MIRROR
from trainmaster.api.meta import GVR, Object
from trainmaster.api.patches import merge
from trainmaster.api.reading import read_status
from trainmaster.api.resources import DEPLOYMENTS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.scopes import Scope
from trainmaster.version import __version__

log = logging.getLogger(__name__)

NAMESPACE = "kubeflow-system"
PART_OF = "app.kubernetes.io/part-of"
NAME = "app.kubernetes.io/name"
IMAGE = f"trainmaster:{__version__}"
LOOK_SECONDS = 5.0
START_SECONDS = 1.0
ADDRESS = "127.0.0.1"
CONTROLLER_NAMES = {
    "trainjob": "kubeflow-trainer-controller-manager",
    "jobset": "jobset-controller-manager",
    "scheduler": "trainmaster-scheduler",
}
"""The first two as upstream's Deployments are called."""

Check = Callable[[], str]
"""Empty if the part is ready; otherwise why it is not."""


def name_controller(name: str) -> str:
    return CONTROLLER_NAMES.get(name, f"trainmaster-{name}-controller")


class Components:
    def __init__(self, client: Client, clock: Clock, checks: Mapping[str, Check], *, node: str = "local") -> None:
        self._client = client
        self._clock = clock
        self._checks = dict(checks)
        self._node = node
        self._started = clock.now()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Scope("components") as scope:
            scope.spawn_forever(self._work(), name="components")
            yield

    async def _work(self) -> None:
        is_first = True
        while True:
            try:
                if is_first and (await self._list_shown(PODS)).keys() == self._checks.keys():
                    await self._clock.sleep(START_SECONDS)
                is_first = False
                await self.sync()
            except (StatusError, OSError) as error:
                log.warning("components not shown", extra={"action": "components.unwritten", "error": str(error)})
            await self._clock.sleep(LOOK_SECONDS)

    async def _list_shown(self, gvr: GVR) -> dict[str, Object]:
        options = ListOptions(label_selector=f"{PART_OF}=trainmaster")
        return {obj["metadata"]["name"]: obj for obj in (await self._client.list(gvr, NAMESPACE, options)).items}

    async def sync(self) -> None:
        """Updates the Pods and the Deployments."""
        pods = await self._remove_stale(PODS)
        deployments = await self._remove_stale(DEPLOYMENTS)
        for name, check in self._checks.items():
            await asyncio.sleep(0)  # the first time this takes longer than requests should wait
            trouble = check()
            await self._show_pod(name, pods.get(name), trouble)
            await self._show_deployment(name, deployments.get(name), trouble)

    async def _remove_stale(self, gvr: GVR) -> dict[str, Object]:
        """Removes objects of parts that no longer exist, and Pods of another version. Returns the others, by name."""
        current = {}
        for name, obj in (await self._list_shown(gvr)).items():
            is_replaced = gvr == PODS and obj["spec"]["containers"][0]["image"] != IMAGE
            if name not in self._checks or is_replaced or "deletionTimestamp" in obj["metadata"]:
                await self._remove(gvr, obj)
            else:
                current[name] = obj
        return current

    async def _remove(self, gvr: GVR, obj: Object) -> None:
        """Immediately, because there is no process to wait for."""
        meta = obj["metadata"]
        try:
            await self._client.delete(gvr, meta["name"], NAMESPACE, DeleteOptions(grace_seconds=0, uid=meta["uid"]))
        except NotFound:
            return

    async def _show_pod(self, name: str, pod: Object | None, trouble: str) -> None:
        if pod is None:
            pod = await self._client.create(PODS, build_pod(name, self._node), NAMESPACE)
        status = build_status(pod, trouble, self._started, self._clock.now())
        await self._write_status(PODS, pod, status)

    async def _show_deployment(self, name: str, deployment: Object | None, trouble: str) -> None:
        if deployment is None:
            deployment = await self._client.create(DEPLOYMENTS, build_deployment(name), NAMESPACE)
        elif deployment["spec"]["template"]["spec"]["containers"][0]["image"] != IMAGE:
            patch = {"metadata": {"uid": deployment["metadata"]["uid"]}, "spec": build_deployment(name)["spec"]}
            deployment = await self._client.patch(DEPLOYMENTS, name, PatchType.MERGE, patch, NAMESPACE)
        status = build_deployment_status(deployment, trouble, self._clock.now())
        await self._write_status(DEPLOYMENTS, deployment, status)

    async def _write_status(self, gvr: GVR, obj: Object, status: Object) -> None:
        """Writes the fields that have changed, if any."""
        before = read_status(obj)
        changed = merge.build_patch(before, {**before, **status})
        if changed:
            meta = obj["metadata"]
            patch = {"metadata": {"uid": meta["uid"]}, "status": changed}
            await self._client.patch(gvr, meta["name"], PatchType.MERGE, patch, NAMESPACE, subresource="status")


def _build_labels(name: str) -> dict[str, str]:
    return {PART_OF: "trainmaster", NAME: name, "app.kubernetes.io/component": "manager"}


def _build_pod_spec() -> Object:
    return {
        "hostNetwork": True,
        "priorityClassName": "system-cluster-critical",
        "containers": [{"name": "manager", "image": IMAGE}],
        "tolerations": [{"operator": "Exists"}],
    }


def build_pod(name: str, node: str) -> Object:
    meta = {"name": name, "namespace": NAMESPACE, "labels": _build_labels(name), "annotations": {MIRROR: name}}
    return {
        "apiVersion": PODS.api_version,
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, **_build_pod_spec()},
    }


def build_deployment(name: str) -> Object:
    labels = _build_labels(name)
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {NAME: name}},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": _build_pod_spec()},
        },
    }


def build_status(pod: Object, trouble: str, started: datetime, now: datetime) -> Object:
    image = pod["spec"]["containers"][0]["image"]
    container = {
        "name": "manager",
        "image": image,
        "imageID": "",
        "ready": not trouble,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": format_time(started)}},
        "lastState": {},
    }
    reason, message = ("ComponentNotReady", trouble) if trouble else ("", "")
    return {
        "phase": "Running",
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "startTime": format_time(started),
        "conditions": [
            _build_condition(pod, "Initialized", "", "", now),
            _build_condition(pod, "Ready", reason, message, now),
            _build_condition(pod, "ContainersReady", reason, message, now),
            _build_condition(pod, "PodScheduled", "", "", now),
        ],
        "containerStatuses": [container],
    }


def build_deployment_status(deployment: Object, trouble: str, now: datetime) -> Object:
    available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    if trouble:
        available = ("False", "MinimumReplicasUnavailable", trouble)
    progressing = ("True", "NewReplicaSetAvailable", "The part has been started.")
    conditions = []
    for kind, (status, reason, message) in (("Available", available), ("Progressing", progressing)):
        since = _find_since(deployment, kind, status, now)
        times = {"lastUpdateTime": since, "lastTransitionTime": since}
        conditions.append({"type": kind, "status": status, "reason": reason, "message": message, **times})
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 0 if trouble else 1,
        "availableReplicas": 0 if trouble else 1,
        "unavailableReplicas": 1 if trouble else 0,
        "conditions": conditions,
    }


def _find_since(obj: Object, kind: str, status: str, now: datetime) -> str:
    """Since when the condition has had this status."""
    before = find_condition(list_conditions(obj), kind)
    if before is not None and before.get("status") == status:
        return str(before["lastTransitionTime"])
    return format_time(now)


def _build_condition(pod: Object, kind: str, reason: str, message: str, now: datetime) -> Object:
    status = "False" if reason else "True"
    since = _find_since(pod, kind, status, now)
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    return {**condition, "reason": reason, "message": message} if reason else condition
