"""Delete TrainJobs with everything below them: JobSets, Jobs and Pods; running processes are stopped.

  trainmaster delete my-job
  trainmaster delete a b --wait
  trainmaster delete -l team=vision --dry-run

Records and logs stay in the history of the home (`trainmaster history`). `trainmaster cleanup` deletes finished jobs
by age and state.

Exit codes: 0 success, 1 a job could not be deleted, 6 timeout (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.api.status import Conflict, NotFound
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_jobs
from trainmaster.cli.output import name_object
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.cli.waiting import DELETED, add_timeout, read_timeout, wait_for
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs.kinds import find_kind
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.training import TrainingJob


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", type=read_job, metavar="JOB", help="names of TrainJobs, or KIND/NAME")
    add_kind(parser)
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="TrainJobs with these labels")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    parser.add_argument("--wait", action="store_true", help="wait until they and their Pods are gone")
    add_timeout(parser)
    add_server(parser, all_namespaces=True)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if bool(options.names) == bool(options.selector):
        raise exits.Failure("say which: names, or -l LABELS", exits.USAGE)
    if options.names and options.all_namespaces:
        raise exits.Failure("a name and -A do not go together: name the namespace with -n", exits.USAGE)
    seconds = read_timeout(options)

    async def work(client: Client) -> int:
        jobs = await _select(client, options)
        if not jobs:
            where = f"in namespace {options.namespace}" if options.namespace else "in any namespace"
            context.note(f"no TrainJob with {options.selector} {where}")
        if not options.dry_run:
            deleted = [job for job in jobs if await _delete(client, job, context, wait=options.wait)]
            if options.wait:
                await wait_for(client, deleted, DELETED, seconds)
        for job in jobs:
            context.say(f"{name_object(job.gvr, job.name)} {_describe(options, job)}")
        return exits.OK

    code = call(context, options, work)
    if not options.dry_run and not is_cluster(options):
        context.note("their records and logs stay: `trainmaster history list`")
    return code


async def _select(client: Client, options: argparse.Namespace) -> list[TrainingJob]:
    """Looks up all jobs before the first is deleted."""
    if options.selector:
        kind = find_kind(options.kind)
        return await list_training_jobs(client, options.namespace, options.selector, kind)
    return await get_jobs(client, options.namespace, options.names)


async def _delete(client: Client, job: TrainingJob, context: CommandContext, *, wait: bool) -> bool:
    # With foreground deletion the TrainJob is removed after its dependents, so waiting for it is enough.
    options = DeleteOptions(propagation="Foreground" if wait else "Background", uid=job.uid)
    try:
        await client.delete(job.gvr, job.name, job.namespace, options)
    except NotFound:
        return False
    except Conflict:
        context.note(f"{job.name} was made anew meanwhile; that one is left alone")
        return False
    return True


def _describe(options: argparse.Namespace, job: TrainingJob) -> str:
    state = job.state
    running = not state.is_final and job.is_active
    if options.dry_run:
        return f"would be deleted ({state.word}{', its Pods would be stopped' if running else ''})"
    return f"deleted ({'its Pods are stopped' if running else 'it was ' + state.word})"
