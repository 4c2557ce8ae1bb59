"""Describe a TrainJob: its state and reason, its ranks with their exit codes, its deadlines, its latest events.

  trainmaster describe my-job

Also suggests the next commands. Works with the local server and with any cluster. Changes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import read_policy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOBS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.advising import list_job_advice
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobpage import JobDetails, build_page
from trainmaster.cli.jobs import add_names, get_job
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.lookups import find_readable, find_runtime, read_parts
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.queueing.reading import read_wait
from trainmaster.kit.clock import SystemClock

_EVENTS_OF_PODS = 8
"""Maximum number of Pods whose events are fetched, with one request each; Pods that are not running come first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    outputs = "" if is_cluster(options) else "trainmaster outputs list"

    home = None if is_cluster(options) else context.home(options)

    async def work(client: Client) -> list[JobDetails]:
        found = [await collect(client, options.namespace, name, outputs) for name in options.names]
        return [replace(one, advice=await list_job_advice(client, one.job, home)) for one in found]

    for number, story in enumerate(call(context, options, work)):
        if number:
            context.say()
        for line in build_page(context, story):
            context.say(line)
    return exits.OK


async def collect(client: Client, namespace: str, name: str, outputs: str = "") -> JobDetails:
    job = await get_job(client, namespace, name)
    runtime, config, parts = await asyncio.gather(
        find_runtime(client, job),
        find_readable(client, CONFIG_MAPS, policy.NAME, policy.NAMESPACE),
        read_parts(client, job),
    )
    pods = [Pod(pod) for pod in parts.pods]
    troubled = sorted(pods, key=lambda pod: pod.phase in ("Running", "Succeeded"))
    # Refused Pods are reported only there.
    jobs = await _list_jobs(client, parts.jobset) if parts.jobset and not troubled else []
    about = [job, *([parts.jobset] if parts.jobset else []), *jobs, *troubled[:_EVENTS_OF_PODS]]
    events = await asyncio.gather(*(_list_events(client, namespace, one.uid) for one in about))
    return JobDetails(
        job,
        SystemClock().now(),
        wait=await read_wait(client, job, SystemClock().now()),
        runtime=runtime,
        attempts=job.read_attempts(parts.jobset),
        pods=pods,
        events=[ObjectEvent(event) for found in events for event in found],
        policy=read_policy(config).policy,
        outputs=outputs,
    )


async def _list_jobs(client: Client, jobset: JobSet) -> list[Job]:
    options = ListOptions(label_selector=f"{JOBSET_UID}={jobset.uid}", limit=_EVENTS_OF_PODS)
    try:
        return list(map(Job, (await client.list(JOBS, jobset.namespace, options)).items))
    except StatusError as error:
        if error.code == 403:
            return []
        raise


async def _list_events(client: Client, namespace: str, uid: str) -> list[Object]:
    try:
        return (await client.list(EVENTS, namespace, ListOptions(field_selector=f"involvedObject.uid={uid}"))).items
    except StatusError as error:
        if error.code == 403:
            return []
        raise
