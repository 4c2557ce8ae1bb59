"""Waits until the Pods of an installation are ready and its webhooks answer, and says what keeps them from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_spec, read_status, read_text
from trainmaster.api.resources import DEPLOYMENTS, PODS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.installation.cluster.objects import ObjectReference
from trainmaster.cli.waiting import wait_until
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.follow import follow
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.troubles import find_trouble
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.doctor import ClusterFacts, check_events, check_webhooks

_AGAIN_SECONDS = 0.5

Tell = Callable[[str], None]


@dataclass(slots=True)
class Rollout:
    client: Client
    clock: Clock
    namespace: str
    tell: Tell
    """Is told what changes while it waits."""
    seconds: float
    """For everything that is waited for."""
    _told: set[str] = field(default_factory=set)
    _end: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def __post_init__(self) -> None:
        self._end += self.seconds

    async def await_available(self, deployments: Sequence[ObjectReference]) -> None:
        """Failure with TIMED_OUT and the reasons."""

        async def wait() -> None:
            async with Scope("rollout") as scope:
                scope.spawn_forever(self._watch_pods(), name="rollout.pods")
                await asyncio.gather(*(self._await_one(one) for one in deployments))

        await self._limit(wait(), "its Pods are not ready")

    async def await_webhooks(self) -> None:
        """The leader writes `caBundle` a moment after its Pod is ready."""

        async def wait() -> None:
            while await self._find_webhook_problem():
                await self.clock.sleep(_AGAIN_SECONDS)

        await self._limit(wait(), "the API server does not reach its webhooks")

    async def await_gone(self, objects: Sequence[ObjectReference]) -> None:
        """Until they are gone: Deployments with their Pods, definitions with their objects."""
        waits = [wait_until(self.client, one.gvr, one.name, one.namespace, _is_gone) for one in objects]
        names = ", ".join(one.title for one in objects)
        await self._limit(asyncio.gather(*waits), f"{names}: not everything is gone")

    async def _limit(self, work: Awaitable[object], what: str) -> None:
        try:
            async with asyncio.timeout_at(self._end):
                await work
        except TimeoutError:
            lines = [f"{what} after {self.seconds:g} s; `kubectl describe pods -n {self.namespace}` says more"]
            lines += [f"  {reason}" for reason in await self.list_reasons()]
            raise exits.Failure("\n".join(lines), exits.TIMED_OUT) from None

    async def _await_one(self, deployment: ObjectReference) -> None:
        def judge(found: Object | None) -> str | None:
            if found is None:
                raise exits.Failure(f"{deployment.title} was deleted while it was waited for")
            self._tell_once(read_refusal(found))
            is_done, text = describe_rollout(found)
            self._tell_once(text and f"{deployment.title}: {text}")
            return "" if is_done else None

        await wait_until(self.client, DEPLOYMENTS, deployment.name, deployment.namespace, judge)

    def _tell_once(self, text: str) -> None:
        if text and text not in self._told:
            self._told.add(text)
            self.tell(text)

    async def _watch_pods(self) -> None:
        async def look(_: object) -> None:
            for text in await self._list_pod_reasons():
                self._tell_once(text)

        await follow(self.client, self.clock, PODS, look, look, namespace=self.namespace, trouble=lambda error: None)

    async def _list_pod_reasons(self) -> list[str]:
        try:
            pods = (await self.client.list(PODS, self.namespace, ListOptions())).items
        except (StatusError, OSError):
            return []
        trouble = find_trouble(Pod(pod) for pod in pods)
        return [f"{trouble.reason}: {trouble.message}"] if trouble else []

    async def list_reasons(self) -> list[str]:
        """What the Pods, the Deployments and the operators themselves say."""
        found = await self._list_pod_reasons()
        try:
            deployments = (await self.client.list(DEPLOYMENTS, self.namespace)).items
            found += filter(None, map(read_refusal, deployments))
            facts = ClusterFacts(self.client, self.namespace, self.clock)
            found += [one.seen for one in await check_events(facts)]
            found += filter(None, [await self._find_webhook_problem()])
        except (StatusError, OSError) as error:
            found.append(str(error))
        return found

    async def _find_webhook_problem(self) -> str:
        try:
            found = await check_webhooks(ClusterFacts(self.client, self.namespace, self.clock))
        except StatusError as error:
            if error.code == 403:
                return ""
            raise
        return next((one.seen for one in found if one.state == "problem"), "")


def _is_gone(found: Object | None) -> str | None:
    return "" if found is None else None


def describe_rollout(deployment: Fields) -> tuple[bool, str]:
    """Whether all Pods are of the current template and ready, and how many are; "" while the Deployment controller has
    not noticed the change."""
    status, wanted = read_status(deployment), read_spec(deployment).get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False, ""
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    ready = min(updated, available)
    is_done = updated == wanted == available and status.get("replicas", 0) == wanted
    return is_done, f"{ready} of {wanted} {'Pod' if wanted == 1 else 'Pods'} ready"


def read_refusal(deployment: Fields) -> str:
    """Why the server does not let its Pods be created; "" if it does."""
    for condition in list_items(read_fields(deployment, "status"), "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"{read_text(condition, 'reason')}: {read_text(condition, 'message')}"
    return ""
