"""`trainmaster doctor trainjob NAME`: collects what a server shows of one TrainJob, and prints what is wrong with it.

Only reads. What may not be read is a finding too. Used by the command `doctor`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import read_policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_status
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import snapshots
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.connection import call
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.http import HttpClient
from trainmaster.jobs.diagnosis import Case, CheckResult, examine
from trainmaster.jobs.lookups import find_readable, find_runtime
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock

REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_WANTED = (
    ("delete", TRAIN_JOBS),
    ("patch", TRAIN_JOBS),
    ("list", JOB_SETS),
    ("list", JOBS),
    ("list", PODS),
)
_RETRY = re.compile(
    r'^(?:trainmaster_reconcile_total\{controller="(?P<one>[^"]+)",result="retry"\}'
    r'|trainmaster_cleanup_retries_total\{controller="(?P<two>[^"]+)"\}) (?P<count>\S+)$',
    re.MULTILINE,
)


def run(options: argparse.Namespace, context: CommandContext, name: str) -> int:
    case = call(context, options, lambda client: collect(client, name, options.namespace))
    found = examine(case)
    if options.output == "table":
        _show(context, found)
    else:
        body = {"trainjob": name, "namespace": options.namespace, "findings": [asdict(one) for one in found]}
        print_data(context, body, options.output)
    return exits.FAILED if found else exits.OK


def _show(context: CommandContext, found: Sequence[CheckResult]) -> None:
    if not found:
        context.note("nothing found")
        return
    print_table(context, ("CHECK", "STATE", "SEEN"), [(one.check, one.state, one.seen) for one in found])
    fixes = [one for one in found if one.fix]
    if fixes:
        context.say()
    for one in fixes:
        context.say(f"{one.check}: {one.fix}")


async def collect(client: Client, name: str, namespace: str) -> Case:
    assert isinstance(client, HttpClient), "that is what commands use"
    try:
        trainjob = await client.get(TRAIN_JOBS, name, namespace)
    except NotFound:
        text = f"there is no TrainJob {namespace}/{name}: `trainmaster history get {name} -n {namespace}` may know it"
        raise exits.Failure(text) from None
    now, skew = await _compare_clocks(client)
    jobset = await find_readable(client, JOB_SETS, name, namespace)
    uid = jobset["metadata"]["uid"] if jobset is not None else ""
    snapshot = await find_readable(client, CONFIG_MAPS, snapshots.get_name(trainjob), namespace)
    return Case(
        TrainJob(trainjob),
        now,
        runtime=await find_runtime(client, trainjob),
        snapshot=snapshot is not None,
        jobsets=[JobSet(jobset)] if jobset is not None else [],
        jobs=[Job(one) for one in await _list_of(client, JOBS, namespace, uid)],
        pods=[Pod(one) for one in await _list_of(client, PODS, namespace, uid)],
        policy=read_policy(await find_readable(client, CONFIG_MAPS, policy.NAME, policy.NAMESPACE)).policy,
        forbidden=await _list_forbidden(client, namespace),
        skew=skew,
        retries=await _read_retries(client),
    )


async def _compare_clocks(client: HttpClient) -> tuple[datetime, float | None]:
    """The server's time, and by how much it is ahead; ours when it does not say."""
    answer = await client.request("GET", "/version")
    own = SystemClock().now()
    try:
        served = parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        return own, None
    return served, (served - own).total_seconds()


async def _list_of(client: Client, gvr: GVR, namespace: str, jobset: str) -> Sequence[Object]:
    if not jobset:
        return ()
    try:
        return (await client.list(gvr, namespace, ListOptions(label_selector=f"{JOBSET_UID}={jobset}"))).items
    except StatusError as error:
        if error.code == 403:
            return ()
        raise


async def _list_forbidden(client: Client, namespace: str) -> list[tuple[str, str]]:
    found = []
    for verb, gvr in _WANTED:
        attributes = {"namespace": namespace, "verb": verb, "group": gvr.group, "resource": gvr.plural}
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
    """From our own server's metrics; another server has none of these, or does not show them to everybody."""
    try:
        text = (await client.request("GET", "/metrics")).body.decode(errors="replace")
    except StatusError:
        return {}
    found: dict[str, float] = {}
    for match in _RETRY.finditer(text):
        name = match["one"] or match["two"]
        found[name] = found.get(name, 0.0) + float(match["count"])
    return found
