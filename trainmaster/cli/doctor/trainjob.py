"""`trainmaster doctor trainjob NAME`: reads the objects of one job and prints its problems.

It only reads. Objects that it is not allowed to read are a finding too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import read_policy
from trainmaster.api.meta import GVR
from trainmaster.api.reading import read_status
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS
from trainmaster.api.status import StatusError
from trainmaster.api.training import snapshots
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_job
from trainmaster.cli.output import build_table, print_data
from trainmaster.cli.servers.connection import call
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.http import HttpClient
from trainmaster.jobs.diagnosis import Case, CheckResult, examine
from trainmaster.jobs.lookups import find_jobset, find_readable, find_runtime, read_parts
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.troubles import REFUSED
from trainmaster.kit.clock import SystemClock

_MOST_LINES = 8
"""Of what was seen, on a narrow terminal."""
REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
T = TypeVar("T")
_RETRY = re.compile(
    r'^(?:trainmaster_reconcile_total\{controller="(?P<one>[^"]+)",result="retry"\}'
    r'|trainmaster_cleanup_retries_total\{controller="(?P<two>[^"]+)"\}) (?P<count>\S+)$',
    re.MULTILINE,
)


def run(options: argparse.Namespace, context: CommandContext, reference: str) -> int:
    """`reference`: KIND/NAME."""
    case = call(context, options, lambda client: collect(client, reference, options.namespace))
    found = examine(case)
    if options.output == "table":
        _show(context, found)
    else:
        body = {
            case.job.word: case.job.name,
            "namespace": options.namespace,
            "findings": [asdict(one) for one in found],
        }
        print_data(context, body, options.output)
    return exits.FAILED if found else exits.OK


def _show(context: CommandContext, found: Sequence[CheckResult]) -> None:
    if not found:
        context.note("nothing found")
        return
    rows = [(one.check, one.state, one.seen) for one in found]
    for line in build_table(context, ("CHECK", "STATE", "SEEN"), rows, most_lines=_MOST_LINES):
        context.say(line)
    fixes = [one for one in found if one.fix]
    if fixes:
        context.say()
    for one in fixes:
        context.say(f"{one.check}: {one.fix}")


async def collect(client: Client, reference: str, namespace: str) -> Case:
    assert isinstance(client, HttpClient), "that is what commands use"
    job = await get_job(client, namespace, reference)
    now, skew = await _compare_clocks(client)
    jobset = await _skip_forbidden(find_jobset(client, job))
    parts = await _skip_forbidden(read_parts(client, job))
    snapshot = await find_readable(client, CONFIG_MAPS, snapshots.get_name(job.raw), namespace)
    jobs = [] if jobset is None else await _skip_forbidden(_list_jobs(client, jobset)) or []
    return Case(
        job,
        now,
        runtime=await find_runtime(client, job),
        snapshot=snapshot is not None,
        jobsets=[] if jobset is None else [jobset],
        jobs=jobs,
        events=await _skip_forbidden(_list_refusals(client, namespace)) or [] if jobs else [],
        pods=[] if parts is None else [Pod(one) for one in parts.pods],
        policy=read_policy(await find_readable(client, CONFIG_MAPS, policy.NAME, policy.NAMESPACE)).policy,
        forbidden=await _list_forbidden(client, job),
        skew=skew,
        retries=await _read_retries(client),
    )


async def _compare_clocks(client: HttpClient) -> tuple[datetime, float | None]:
    """The server's time, and how far it is ahead of ours; our time if the server does not report one."""
    answer = await client.request("GET", "/version")
    own = SystemClock().now()
    try:
        served = parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        return own, None
    return served, (served - own).total_seconds()


async def _list_jobs(client: Client, jobset: JobSet) -> list[Job]:
    options = ListOptions(label_selector=f"{JOBSET_UID}={jobset.uid}")
    return list(map(Job, (await client.list(JOBS, jobset.namespace, options)).items))


async def _list_refusals(client: Client, namespace: str) -> list[ObjectEvent]:
    """Of Jobs whose Pods the server refuses."""
    options = ListOptions(field_selector=f"involvedObject.kind=Job,reason={REFUSED}")
    return list(map(ObjectEvent, (await client.list(EVENTS, namespace, options)).items))


async def _skip_forbidden(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except StatusError as error:
        if error.code == 403:
            return None
        raise


async def _list_forbidden(client: Client, job: TrainingJob) -> list[tuple[str, str]]:
    found = []
    below = (JOB_SETS, JOBS, PODS) if job.has_jobset else (PODS,)
    for verb, gvr in (("delete", job.gvr), ("patch", job.gvr), *(("list", gvr) for gvr in below)):
        attributes = {"namespace": job.namespace, "verb": verb, "group": gvr.group, "resource": gvr.plural}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await client.create(REVIEWS, body)
        if not read_status(answer).get("allowed"):
            found.append((verb, gvr.qualified))
    return found


async def _read_retries(client: HttpClient) -> dict[str, float]:
    """Retries from the metrics of our server. Other servers do not have them, or do not show them to every user."""
    try:
        text = (await client.request("GET", "/metrics")).body.decode(errors="replace")
    except StatusError:
        return {}
    found: dict[str, float] = {}
    for match in _RETRY.finditer(text):
        name = match["one"] or match["two"]
        found[name] = found.get(name, 0.0) + float(match["count"])
    return found
