"""Runs helper programs ("errands") on behalf of a Pod before it starts: in a sandbox like its own, with its rights.

An errand is a Pod without an object: a shim runs it as the Pod's user, with the Pod's limits (or moderate ones if it
has none), on the network of its namespace, and without its volumes. It does not outlive the agent: leftovers of a crash
are removed with other strays before Pods are handled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Check, Errand, ErrandReport, ImageError
from trainmaster.node.launch.budgets import find_budget
from trainmaster.node.launch.contract import LaunchError, Prepared, Site, get_container
from trainmaster.node.launch.limits import build_pod_limits
from trainmaster.node.launch.security import decide_privileges
from trainmaster.node.network.leases import NetworkLeases
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import AttemptEnded, Lost, ShimEvent, Supervisor, SupervisorError
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Exited, ResourceLimits, SandboxSpec

_CONTAINER = "errand"
_CHECK_SECONDS = 2.0
_MEMORY = 4 << 30
_PIDS = 512


class ErrandRunner:
    """Implements `images.contract.Errands`."""

    def __init__(self, supervisor: Supervisor, places: NetworkLeases, server_uid: int) -> None:
        self._supervisor = supervisor
        self._places = places
        self._server_uid = server_uid
        self._running: dict[str, asyncio.Future[Exited]] = {}

    def list_uids(self) -> set[str]:
        """Uids of directories in use that belong to no Pod."""
        return set(self._running)

    def take(self, event: ShimEvent) -> bool:
        """Returns whether the event was about an errand."""
        done = self._running.get(event.uid)
        if done is not None and not done.done():
            if isinstance(event, AttemptEnded):
                done.set_result(event.exited)
            elif isinstance(event, Lost):
                done.set_result(Exited(137, 0.0, error="it was killed"))
        return done is not None

    async def run(self, pod: Pod, errand: Errand, check: Check) -> ErrandReport:
        """Raises ImageError if it cannot be run or must be stopped."""
        uid = errand.name
        helper = _build_helper(pod, uid)
        self._running[uid] = asyncio.get_running_loop().create_future()
        try:
            await self._clear(uid)
            site = await self._places.build_site(helper, {})
            spec = self._build_spec(pod, errand, site)
            budget = await find_budget(self._places.client, pod.namespace)
            sandbox = await self._places.build_sandbox(helper, Prepared(site, budget=budget))
            await self._supervisor.create(uid, _fit(sandbox, errand, spec.limits), [spec])
            exited = await self._wait(self._running[uid], errand, check)
        except (SupervisorError, ShimError, LaunchError) as error:
            raise ImageError(str(error)) from None
        finally:
            try:
                await self._clear(uid)
            finally:
                self._places.release(helper)
                self._running.pop(uid, None)
        if exited.oom_killed:
            return ErrandReport(exited.code, "ERROR: it needs more memory than the Pod may have")
        return ErrandReport(exited.code, exited.message or exited.error)

    async def _wait(self, done: asyncio.Future[Exited], errand: Errand, check: Check) -> Exited:
        left = errand.seconds
        while left > 0:
            await asyncio.wait([done], timeout=_CHECK_SECONDS)
            if done.done():
                return done.result()
            left -= _CHECK_SECONDS
            if why := await check():
                raise ImageError(why, lasts=True)
        raise ImageError(f"it took longer than {errand.seconds:.0f} s")

    async def _clear(self, uid: str) -> None:
        """Kills it and removes its directory."""
        await self._supervisor.close(uid)
        await self._supervisor.remove(uid)

    def _build_spec(self, pod: Pod, errand: Errand, site: Site) -> ContainerSpec:
        privileges = decide_privileges(pod, get_container(pod, errand.container), site.level, self._server_uid)
        ways = site.variables if errand.egress else {}
        return ContainerSpec(
            name=_CONTAINER,
            attempt=0,
            argv=errand.argv,
            env={**ways, **errand.env, "TRAINMASTER_POD_UID": errand.name},
            directory=errand.directory,
            mounts=() if site.level == PLAIN else errand.mounts,
            run_as_user=privileges.user,
            run_as_group=privileges.group,
            groups=privileges.groups,
            log_max_bytes=1 << 20,
            log_keep=1,
            message_from_logs=True,
            limits=decide_limits(pod),
        )


def _build_helper(pod: Pod, uid: str) -> Pod:
    """In the Pod's namespace, but not in the API."""
    meta = {"uid": uid, "name": uid, "namespace": pod.namespace}
    return Pod({"metadata": meta, "spec": {"containers": [{"name": _CONTAINER}]}})


def _fit(sandbox: SandboxSpec, errand: Errand, limits: ResourceLimits) -> SandboxSpec:
    relays = sandbox.relays if errand.egress else ()
    return replace(sandbox, limits=limits, relays=relays, hide=(*sandbox.hide, *errand.hide))


def decide_limits(pod: Pod) -> ResourceLimits:
    """The Pod's own limits, since its containers do not run yet; never unlimited."""
    found = build_pod_limits(pod)
    return replace(found, memory=found.memory or _MEMORY, pids=found.pids or _PIDS)
