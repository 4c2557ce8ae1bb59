"""`down --stop-jobs`: suspends every job that runs on its own account and waits until no Pod runs any more.

Only the top of each chain is touched (a TrainJob, a JobSet or Job that nobody controls, a Pod without a controller),
and the controllers carry it down. Suspending keeps the jobs: resume one with spec.suspend: false after the next `up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.api.labels import MIRROR
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.app.home import ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig

_SUSPEND = {"spec": {"suspend": True}}
_FINISHED_PHASES = ("Succeeded", "Failed")


def stop_jobs(info: ServerInfo, timeout: float, context: CommandContext) -> None:
    """Failure when it cannot be done within the time; the server then keeps running."""
    try:
        asyncio.run(_stop_jobs(info, timeout, context))
    except TimeoutError:
        raise exits.Failure(
            f"Pods are still running after {timeout:g} s, so the server was not stopped: raise --timeout or delete them"
        ) from None
    except (StatusError, ConfigError) as error:
        raise exits.Failure(f"the jobs cannot be stopped: {error}; the server keeps running") from error


async def _stop_jobs(info: ServerInfo, timeout: float, context: CommandContext) -> None:
    client = HttpClient(load_kubeconfig([Path(info.kubeconfig)]))
    try:
        async with asyncio.timeout(timeout):
            suspended = await suspend_all(client)
            context.say(f"suspended {suspended} jobs; waiting for their Pods to stop")
            await wait_for_pods(client)
    finally:
        await client.close()


async def suspend_all(client: Client) -> int:
    """Suspends all jobs at the top of their chain and deletes Pods without a controller; returns how many."""
    count = 0
    for gvr in (TRAIN_JOBS, JOB_SETS, JOBS):
        for job in (await client.list(gvr)).items:
            if is_stoppable(job):
                metadata = job["metadata"]
                try:
                    await client.patch(gvr, metadata["name"], PatchType.MERGE, _SUSPEND, metadata["namespace"])
                except NotFound:
                    continue  # deleted meanwhile: stopped, too
                count += 1
    for pod in (await client.list(PODS)).items:
        metadata = pod["metadata"]
        if not _has_controller(metadata) and _is_running(pod):
            options = DeleteOptions(uid=metadata["uid"])
            try:
                await client.delete(PODS, metadata["name"], metadata["namespace"], options)
            except NotFound:
                continue
            count += 1
    return count


def is_stoppable(job: Object) -> bool:
    """Unfinished, not suspended yet, and controlled by nobody."""
    conditions = job.get("status", {}).get("conditions", [])
    finished = any(
        condition.get("type") in ("Complete", "Completed", "Failed") and condition.get("status") == "True"
        for condition in conditions
    )
    suspended = job.get("spec", {}).get("suspend") is True
    return not finished and not suspended and not _has_controller(job["metadata"])


def _has_controller(metadata: Mapping[str, Any]) -> bool:
    return any(owner.get("controller") for owner in metadata.get("ownerReferences", []))


def _is_running(pod: Object) -> bool:
    """The Pods that show parts of the control plane are none of the jobs'."""
    is_mirror = MIRROR in (pod["metadata"].get("annotations") or {})
    return not is_mirror and pod.get("status", {}).get("phase") not in _FINISHED_PHASES


async def wait_for_pods(client: Client) -> None:
    """Returns when no Pod runs any more."""
    listed = await client.list(PODS)
    running = {pod["metadata"]["uid"] for pod in listed.items if _is_running(pod)}
    if not running:
        return
    async with client.watch(PODS, options=WatchOptions(resource_version=listed.resource_version)) as events:
        async for event in events:
            uid = event.object["metadata"]["uid"]
            if event.type == "DELETED" or not _is_running(event.object):
                running.discard(uid)
            else:
                running.add(uid)
            if not running:
                return
    await wait_for_pods(client)  # the watch reached its time limit
