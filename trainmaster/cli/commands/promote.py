"""Submit a job of this machine to a cluster, with its code. Shows what would be different there first.

  trainmaster promote my-job --context my-cluster          shows the differences, submits nothing
  trainmaster promote my-job --context my-cluster --yes    submits it
  trainmaster promote my-job --context my-cluster --dry-run > job.yaml

Checked are the fields of TrainJobs that the cluster has, the runtime, the image, quotas, the objects that the Pods
name, and what this machine does in another way; then the cluster's server checks the job without storing it. The job
here is not changed; it may be running, finished or suspended. Code of up to 900,000 bytes is sent along.

Exit codes: 0 it was submitted, or nothing is against it; 1 it could not run there; 7 no such TrainJob.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data
from trainmaster.cli.servers.connection import call, get_server
from trainmaster.cli.servers.flags import add_cluster, is_cluster, read_job
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds

if TYPE_CHECKING:
    from trainmaster.cli.promotion.target import Promotion

_HEADINGS = {"obstacle": "in the way", "difference": "different there", "not checked": "not checked"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=read_job, metavar="JOB", help="a TrainJob of this machine")
    add_home(parser)
    add_cluster(parser)
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace of the job on this machine")
    parser.add_argument(
        "--to-namespace", default="", metavar="NAME", help="namespace there (default: that of the context)"
    )
    parser.add_argument("--name", default="", metavar="NAME", help="name of the job there (default: the same)")
    parser.add_argument("--yes", action="store_true", help="submit the job, if nothing is in the way")
    parser.add_argument("--dry-run", action="store_true", help="print the manifests instead, for kubectl")
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if not is_cluster(options):
        raise exits.Failure("where to? Name the cluster with --context or --kubeconfig", exits.USAGE)
    if options.yes and options.dry_run:
        raise exits.Failure("--yes and --dry-run contradict each other", exits.USAGE)
    # Imported here so that a wrong command line is reported immediately.
    from trainmaster.cli.promotion import source, target

    here = argparse.Namespace(**{**vars(options), "kubeconfig": "", "context": ""})
    there = argparse.Namespace(**{**vars(options), "namespace": options.to_namespace or None})
    home = context.home(options)
    config = get_server(context, there)
    if get_server(context, here).server == config.server:
        raise exits.Failure(f"{config.server} is the server of this machine: choose another --context", exits.USAGE)
    job = call(context, here, lambda client: source.read_promotion(client, home, here.namespace, options.job))
    source.place(job, home, options.name, there.namespace, SystemIds().suffix(10))

    async def check(client: Client) -> None:
        assert isinstance(client, HttpClient)
        await target.Target(client, await target.read_shape(client), job).check()

    call(context, there, check)
    if options.dry_run:
        return _print_manifests(options, context, job)
    notes = _submit(context, there, job) if options.yes and job.is_possible else []
    _show(options, context, job, config.server)
    for text in notes:
        context.note(f"trainmaster: warning: {text}")
    return exits.OK if job.is_possible else exits.FAILED


def _submit(context: CommandContext, there: argparse.Namespace, job: Promotion) -> list[str]:
    from trainmaster.cli.launch import submission

    try:
        _, notes = call(context, there, lambda client: submission.submit(client, job.composed, SystemClock()))
    except exits.Failure as error:
        # The codes of `run` stand for outcomes of a job that it follows.
        raise exits.Failure(str(error)) from None
    return notes


def _print_manifests(options: argparse.Namespace, context: CommandContext, job: Promotion) -> int:
    form = "json" if options.output == "json" else "yaml"
    print_data(context, {"apiVersion": "v1", "kind": "List", "items": list(job.composed.objects)}, form)
    for one in job.found:
        context.note(f"{one.level}: {one.about}: {one.text}")
    return exits.OK if job.is_possible else exits.FAILED


def _show(options: argparse.Namespace, context: CommandContext, job: Promotion, server: str) -> None:
    meta = job.trainjob["metadata"]
    is_submitted = options.yes and job.is_possible
    if options.output != "table":
        data = {"name": meta["name"], "namespace": meta["namespace"], "server": server, "submitted": is_submitted}
        print_data(context, {**data, "findings": [asdict(one) for one in job.found]}, options.output)
        return
    context.say(f"{meta['namespace']}/{meta['name']} on {server}")
    for level, heading in _HEADINGS.items():
        chosen = [one for one in job.found if one.level == level]
        if chosen:
            context.say(f"{heading}:")
        for one in chosen:
            first, *rest = terminal.wrap(context, one.text, 14)
            context.say(f"  {one.about:<11} {first}")
            for line in rest:
                context.say(f"{'':<14}{line}")
    where = f"-n {meta['namespace']}"
    where += f" --context {options.context}" if options.context else f" --kubeconfig {options.kubeconfig}"
    if is_submitted:
        context.note(f"submitted; `trainmaster watch {meta['name']} {where}` shows it")
    elif job.is_possible:
        context.note("nothing is in the way; add --yes to submit it")
    else:
        context.note("it was not submitted: remove what is in the way, and try again")
