"""`trainmaster doctor trainjob NAME`: reads the objects of one job and prints its problems.

It only reads. Objects that it is not allowed to read are a finding too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_job
from trainmaster.cli.output import build_table, print_data
from trainmaster.cli.servers.connection import call
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.jobs.cases import collect_case
from trainmaster.jobs.diagnosis import Case, CheckResult, examine
from trainmaster.kit.clock import SystemClock

_MOST_LINES = 8
"""Of what was seen, on a narrow terminal."""
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
    """With what only a connection over HTTP shows: the clocks of both sides, and the server's metrics."""
    assert isinstance(client, HttpClient), "that is what commands use"
    job = await get_job(client, namespace, reference)
    now, skew = await _compare_clocks(client)
    case = await collect_case(client, job, now)
    return replace(case, skew=skew, retries=await _read_retries(client))


async def _compare_clocks(client: HttpClient) -> tuple[datetime, float | None]:
    """The server's time, and how far it is ahead of ours; our time if the server does not report one."""
    answer = await client.request("GET", "/version")
    own = SystemClock().now()
    try:
        served = parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        return own, None
    return served, (served - own).total_seconds()


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
