"""`down --stop-jobs`: suspends all jobs and waits until no Pod is running.

Only objects without a controller are suspended (a training job, JobSet or Job) or deleted (a Pod); the controllers do
the rest. `trainmaster resume` continues a job after the next `up`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.app.home.folder import ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob

_SUSPEND = {"spec": {"suspend": True}}
Stoppable: TypeAlias = TrainingJob | JobSet | Job


def stop_jobs(info: ServerInfo, timeout: float, context: CommandContext) -> None:
    """Failure after the timeout; the server then keeps running."""
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
    """Suspends all jobs and deletes all Pods that have no controller or that an ended job has left running; returns
    their number."""
    jobs = await list_training_jobs(client)
    ended = {job.uid for job in jobs if job.is_finished}
    found: list[tuple[GVR, Stoppable, Object]] = [
        *((job.gvr, job, job.build_suspension(True)) for job in jobs),
        *((JOB_SETS, JobSet(obj), _SUSPEND) for obj in (await client.list(JOB_SETS)).items),
        *((JOBS, Job(obj), _SUSPEND) for obj in (await client.list(JOBS)).items),
    ]
    count = 0
    for gvr, job, patch in found:
        if is_stoppable(job):
            try:
                await client.patch(gvr, job.name, PatchType.MERGE, patch, job.namespace)
            except NotFound:
                continue  # deleted meanwhile, which stops it too
            count += 1
    for pod in map(Pod, (await client.list(PODS)).items):
        if _is_running(pod) and (pod.controller is None or pod.controller.get("uid") in ended):
            try:
                await client.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))
            except NotFound:
                continue
            count += 1
    return count


def is_stoppable(job: Stoppable) -> bool:
    """Whether it is unfinished, not suspended, and has no controller."""
    return not job.is_finished and not job.is_suspended and job.controller is None


def _is_running(pod: Pod) -> bool:
    return not pod.is_mirror and not pod.is_over


async def wait_for_pods(client: Client) -> None:
    """Waits until no Pod is running."""
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
