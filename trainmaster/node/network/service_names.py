"""Names of Services inside Pods: updates /etc/hosts of running Pods when Services and Pods change.

The agent reports Pods; Services are watched here. A Service resolves to the addresses of its ready Pods (of all running
ones if it publishes those), for Pods of its namespace. Headless Services of JobSets are left out: their members know
each other from the start (`addresses.build_hosts`), and other files need not change for every job. After a crash a
Pod's file may be outdated, so it is written once when the Pod is adopted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import SERVICES
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, ListOptions, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock
from trainmaster.node.network.addresses import Line, build_service_lines
from trainmaster.node.network.leases import NetworkLeases
from trainmaster.shim.protocol import PLAIN
from trainmaster.shim.sandbox.etc import rewrite_hosts

log = logging.getLogger(__name__)

_PAUSE = 0.02
"""Seconds in which changes are collected, so that Pods that become ready together cause one write."""


@dataclass(slots=True)
class ServiceNames:
    client: Client
    clock: Clock
    places: NetworkLeases
    list_pods: Callable[[], Iterable[Pod]]
    """The Pods of this node in the API."""
    _changed: set[str] = field(default_factory=set)
    """Namespaces whose lines may have changed."""
    _unsure: dict[str, Pod] = field(default_factory=dict)
    """By uid: Pods that may have other lines than their namespace has now."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def load(self) -> None:
        """Called before the first Pod is started, so that it finds existing Services."""
        await self._take_all((await self.client.list(SERVICES, "", ListOptions())).items)

    async def follow(self) -> None:
        async def change(event: WatchEvent) -> None:
            self._take(event.object, gone=event.type == "DELETED")

        await follow(self.client, self.clock, SERVICES, self._take_all, change)

    async def _take_all(self, services: list[Object]) -> None:
        self._changed |= self.places.followed.keys()
        self.places.followed = {}
        for service in filter(is_followed, services):
            namespace, name = _get_key(service)
            self.places.followed.setdefault(namespace, {})[name] = service
        self._changed |= self.places.followed.keys()
        self._news.set()

    def _take(self, service: Object, *, gone: bool) -> None:
        namespace, name = _get_key(service)
        if gone or not is_followed(service):
            followed = self.places.followed.get(namespace, {})
            if followed.pop(name, None) is None:
                return
            if not followed:
                del self.places.followed[namespace]
        else:
            self.places.followed.setdefault(namespace, {})[name] = service
        self._changed.add(namespace)
        self._news.set()

    def note(self, pod: Pod) -> None:
        """The Pod was created, changed or deleted."""
        labels = pod.labels
        for service in self.places.followed.get(pod.namespace, {}).values():
            # A selector that no longer matches is recognized by its keys.
            if any(key in labels for key in service["spec"]["selector"]):
                self._changed.add(pod.namespace)
                self._news.set()
                return

    def check(self, pod: Pod) -> None:
        """The Pod has started or was adopted: its lines may be slightly outdated."""
        if self.places.level != PLAIN and not pod.uses_host_network and not self.places.is_current(pod):
            self._unsure[pod.uid] = pod
            self._news.set()

    async def work(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.clock.sleep(_PAUSE)
            try:
                await self.refresh()
            except (StatusError, OSError) as error:
                # Retried at the next change, and when the node restarts.
                log.warning("names of services not written", extra={"error": str(error)})

    async def refresh(self) -> None:
        changed, self._changed = self._changed, set()
        pods = [pod for pod in self.list_pods() if not _has_no_hosts(pod)] if changed else []
        for namespace in sorted(changed):
            members = [pod for pod in pods if pod.namespace == namespace]
            lines = self._build_lines(namespace, members)
            if lines != self.places.services.get(namespace, ()):
                self.places.services[namespace] = lines
                self._unsure.update((pod.uid, pod) for pod in members)
        unsure, self._unsure = self._unsure, {}
        for pod in unsure.values():
            if not self.places.is_current(pod):
                await self._rewrite(pod)
                await asyncio.sleep(0)

    def _build_lines(self, namespace: str, pods: Iterable[Pod]) -> tuple[Line, ...]:
        members = [pod for pod in pods if _is_running(pod)]
        found: list[Line] = []
        for _, service in sorted(self.places.followed.get(namespace, {}).items()):
            shown = [(pod, self.places.find_address(pod)) for pod in members if _is_published(service, pod)]
            found += build_service_lines([service], shown, namespace)
        return tuple(found)

    async def _rewrite(self, pod: Pod) -> None:
        lines = await self.places.build_lines(pod)
        self.places.note_given(pod)
        try:
            rewrite_hosts(str(self.places.root / pod.uid), lines)
        except FileNotFoundError:
            # It has ended, or is about to start, possibly with outdated lines: check it again.
            self.places.note_given(pod, known=False)


def is_followed(service: Object) -> bool:
    selector = read_fields(service, "spec", "selector")
    return bool(selector) and JOBSET_NAME not in selector


def _is_published(service: Object, pod: Pod) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses")) or pod.is_ready


def _has_no_hosts(pod: Pod) -> bool:
    """It has ended, or has no hosts file of ours."""
    return pod.is_over or pod.uses_host_network


def _is_running(pod: Pod) -> bool:
    return pod.is_running and not pod.is_deleting


def _get_key(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
