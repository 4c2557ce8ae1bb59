"""Show why a job does not run, its position in the queue, what it waits for, and what would start it now.

Without a name: all waiting jobs, the longest waiting first. Running, suspended and finished jobs are explained
too. The scheduler itself computes the proposals on a copy of the queue; they are valid as long as no other jobs are
submitted. Changes nothing.

Exit codes: 0 success, 7 no such job.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from trainmaster.cli import exits, terminal
from trainmaster.cli.advising import find_own_modules
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.jobs import build_missing, explain_missing
from trainmaster.cli.output import print_data
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.client.contract import Client
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.timeline import Now

if TYPE_CHECKING:
    from trainmaster.client.listed import ListedView
    from trainmaster.controllers.explain.reasons import JobExplanation
    from trainmaster.jobs.queueing.waits import QueueWait

_MOST_PROPOSALS = 10
"""Maximum number of jobs to compute proposals for when no names are given; each takes a second if hundreds wait."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", type=read_job, metavar="JOB", help="a TrainJob, or KIND/NAME (default: all waiting ones)"
    )
    add_kind(parser)
    add_server(parser, all_namespaces=True)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.names and options.all_namespaces:
        raise exits.Failure("a name and -A do not go together: name the namespace with -n", exits.USAGE)

    now = Now(SystemClock().now())

    async def work(client: Client) -> tuple[ListedView, dict[str, QueueWait]]:
        # Imported here so that a wrong command line is reported immediately.
        from trainmaster.controllers.explain import gathering

        view = await gathering.collect(client, options.namespace)
        return view, await gathering.collect_waits(client, view, options.namespace, options.names, now.wall)

    view, waits = call(context, options, work)
    # The scheduler is imported only when there is something to explain.
    from trainmaster.controllers.explain import reasons

    places = [(options.namespace, name) for name in options.names] or reasons.list_waiting(
        view, options.namespace, waits
    )
    home = None if is_cluster(options) else context.home(options)
    found: list[tuple[tuple[str, str], JobExplanation | None]] = []
    for number, place in enumerate(places):
        proposals = bool(options.names) or number < _MOST_PROPOSALS
        own = partial(find_own_modules, home)
        found.append((place, reasons.explain(view, *place, now, proposals=proposals, own=own, waits=waits)))
    shown = [one for _, one in found if one is not None]
    if options.output == "table":
        _show(context, shown)
        if not options.names and len(shown) > _MOST_PROPOSALS:
            text = f"what would start a job was asked for the first {_MOST_PROPOSALS} only"
            context.note(f"{text}; name one: `trainmaster explain JOB`")
        if not options.names and not shown:
            where = f"in namespace {options.namespace}" if options.namespace else "in any namespace"
            context.note(f"no TrainJob waits {where}; `trainmaster explain JOB` explains one that does not wait")
    else:
        print_data(context, [to_data(one) for one in shown], options.output)
    missing = [place for place, one in found if one is None]
    for failure in call(context, options, lambda client: _explain_missing(client, missing)) if missing else ():
        context.note(f"trainmaster: {explain_missing(options, context, failure)}")
    return exits.OK if len(shown) == len(found) else exits.NOT_FOUND


async def _explain_missing(client: Client, places: list[tuple[str, str]]) -> list[exits.MissingJob]:
    return [await build_missing(client, namespace, name) for namespace, name in places]


def to_data(one: JobExplanation) -> dict[str, Any]:
    data = asdict(one)
    for change in data["changes"]:
        change.pop("loss")
    return data


def _show(context: CommandContext, found: list[JobExplanation]) -> None:
    for number, one in enumerate(found):
        if number:
            context.say()
        for line in describe(one):
            context.say(line)


def describe(one: JobExplanation) -> Iterator[str]:
    """The text form. Control characters are removed, because it includes output of programs."""
    kind = "" if one.kind == "TrainJob" else f"{one.kind} "
    reason = f" ({one.reason})" if one.reason not in ("", one.state) else ""
    yield f"{kind}{one.namespace}/{one.name}: {one.state}{reason}"
    yield from _list_entry("why:", (one.sentence,))
    if one.position:
        behind = f", behind {', '.join(one.ahead[-3:])}" if one.ahead else ""
        yield from _list_entry("queue:", (f"{one.position} of {one.queue}{behind}",))
    yield from _list_entry("next:", one.unblock)
    yield from _list_entry("starts now:", [f"{change.text}\n  {change.how}" for change in one.changes])
    yield from _list_entry("also:", one.facts)


def _list_entry(label: str, texts: Sequence[str]) -> Iterator[str]:
    """Puts the label before the first text and aligns further lines below it."""
    for text in texts:
        for line in text.splitlines() or [""]:
            indent = line[: len(line) - len(line.lstrip())]
            yield f"  {label:<12}{indent}{terminal.clean(line.strip())}".rstrip()
            label = ""
