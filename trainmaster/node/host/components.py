"""Shows the parts of the control plane as Pods in `kubeflow-system`, as on a cluster.

Each Pod shows whether its part is ready, or why not. They are mirror Pods (like those of static Pods): the scheduler
and the node ignore them, and a deleted one is created again. A Pod is written only when its state changes; checking
takes a few function calls every few seconds.

A start changes all of them, because they show when they started. If they exist already this is delayed a little, so
that a job that caused the start comes first.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import MIRROR
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_status
from trainmaster.api.resources import PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.scopes import Scope
from trainmaster.version import __version__

log = logging.getLogger(__name__)

NAMESPACE = "kubeflow-system"
PART_OF = "app.kubernetes.io/part-of"
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
                if is_first and (await self._list_shown()).keys() == self._checks.keys():
                    await self._clock.sleep(START_SECONDS)
                is_first = False
                await self.sync()
            except (StatusError, OSError) as error:
                log.warning("components not shown", extra={"action": "components.unwritten", "error": str(error)})
            await self._clock.sleep(LOOK_SECONDS)

    async def _list_shown(self) -> dict[str, Object]:
        options = ListOptions(label_selector=f"{PART_OF}=trainmaster")
        return {pod["metadata"]["name"]: pod for pod in (await self._client.list(PODS, NAMESPACE, options)).items}

    async def sync(self) -> None:
        """Updates the Pods."""
        shown = await self._list_shown()
        for name, pod in shown.items():
            if name not in self._checks or "deletionTimestamp" in pod["metadata"]:
                await self._remove(pod)
        for name, check in self._checks.items():
            known = shown.get(name)
            if known is not None and "deletionTimestamp" in known["metadata"]:
                known = None
            await self._show(name, known, check())

    async def _remove(self, pod: Object) -> None:
        """Immediately, because there is no process to wait for."""
        meta = pod["metadata"]
        try:
            await self._client.delete(PODS, meta["name"], NAMESPACE, DeleteOptions(grace_seconds=0, uid=meta["uid"]))
        except NotFound:
            return

    async def _show(self, name: str, pod: Object | None, trouble: str) -> None:
        if pod is None:
            pod = await self._client.create(PODS, build_pod(name, self._node), NAMESPACE)
        status = build_status(pod, trouble, self._started, self._clock.now())
        before = read_status(pod)
        changed = {key: value for key, value in status.items() if before.get(key) != value}
        if changed:
            patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": changed}
            await self._client.patch(PODS, name, PatchType.MERGE, patch, NAMESPACE, subresource="status")


def build_pod(name: str, node: str) -> Object:
    labels = {PART_OF: "trainmaster", "app.kubernetes.io/name": name, "app.kubernetes.io/component": "manager"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": {MIRROR: name}},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "priorityClassName": "system-cluster-critical",
            "containers": [{"name": "manager", "image": f"trainmaster:{__version__}"}],
            "tolerations": [{"operator": "Exists"}],
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


def _build_condition(pod: Object, kind: str, reason: str, message: str, now: datetime) -> Object:
    status = "False" if reason else "True"
    before = find_condition(list_conditions(pod), kind)
    since = format_time(now)
    if before is not None and before.get("status") == status:
        since = before["lastTransitionTime"]
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    return {**condition, "reason": reason, "message": message} if reason else condition
