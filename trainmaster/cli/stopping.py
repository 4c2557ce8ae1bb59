"""`down --stop-jobs`: suspends every job that runs on its own account and waits until no Pod runs any more.

Only the top of each chain is touched (a TrainJob, a JobSet or Job that nobody controls, a Pod without a controller),
and the controllers carry it down. Suspending keeps the jobs: resume one with spec.suspend: false after the next `up`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.app.home.folder import ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod

_SUSPEND = {"spec": {"suspend": True}}
_ENDS = ("Complete", "Completed", "Failed")


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
        for job in map(ObjectModel, (await client.list(gvr)).items):
            if is_stoppable(job):
                try:
                    await client.patch(gvr, job.name, PatchType.MERGE, _SUSPEND, job.namespace)
                except NotFound:
                    continue  # deleted meanwhile: stopped, too
                count += 1
    for pod in map(Pod, (await client.list(PODS)).items):
        if pod.controller is None and _is_running(pod):
            try:
                await client.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))
            except NotFound:
                continue
            count += 1
    return count


def is_stoppable(job: ObjectModel) -> bool:
    """Unfinished, not suspended yet, and controlled by nobody. A TrainJob, a JobSet or a Job."""
    is_finished = any(job.is_true(end) for end in _ENDS)
    return not is_finished and not job.spec.get("suspend") and job.controller is None


def _is_running(pod: Pod) -> bool:
    return not pod.is_mirror and not pod.is_over


async def wait_for_pods(client: Client) -> None:
    """Returns when no Pod runs any more."""
    listed = await client.list(PODS)
    running = {pod.uid for pod in map(Pod, listed.items) if _is_running(pod)}
    if not running:
        return
    async with client.watch(PODS, options=WatchOptions(resource_version=listed.resource_version)) as events:
        async for event in events:
            pod = Pod(event.object)
            if event.type == "DELETED" or not _is_running(pod):
                running.discard(pod.uid)
            else:
                running.add(pod.uid)
            if not running:
                return
    await wait_for_pods(client)  # the watch reached its time limit
