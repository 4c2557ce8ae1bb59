"""Finds a job of this machine by name, also if it was deleted. Used by commands about what jobs leave."""

from __future__ import annotations

import argparse

from trainmaster.api.status import NotFound
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.servers import connection as server
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.client.contract import Client
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.jobs.kinds import read_training_job, split_kind
from trainmaster.jobs.lookups import get_training_job


def add_action(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    """An action of such a command, with the arguments that name the job."""
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    add_home(parser)
    add_job(parser)
    return parser


def add_job(parser: argparse.ArgumentParser) -> None:
    """Adds JOB, -k, -n and --uid."""
    parser.add_argument(
        "job", type=read_job, metavar="NAME", help="name of the TrainJob, or KIND/NAME; the newest if there are several"
    )
    add_kind(parser)
    parser.add_argument("-n", "--namespace", default="default", metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--uid", default="", metavar="UID", help="uid of the job, as shown by `trainmaster history list`"
    )


def find_uid(options: argparse.Namespace, context: CommandContext, home: Home) -> str:
    """The uid of the existing job, else of the newest job of that name in the history."""
    info = home.find_running()
    if not options.uid and info is not None and info.kubeconfig:
        uid = server.call(context, options, lambda client: _ask(client, options))
        if uid:
            return uid
    uid = _find_kept(options, home) if (home.history / FILE).exists() else ""
    if not uid:
        raise exits.Failure(
            f"no TrainJob {options.namespace}/{options.job} exists or is in history: `trainmaster history list` shows "
            "what there is",
            exits.NOT_FOUND,
        )
    return uid


async def _ask(client: Client, options: argparse.Namespace) -> str:
    try:
        return (await get_training_job(client, options.namespace, options.job)).uid
    except NotFound:
        return ""


def _find_kept(options: argparse.Namespace, home: Home) -> str:
    try:
        archive = Archive.open(home.history, read_only=True)
        try:
            if not options.uid:
                for uid, opened in archive.list_open().items():
                    job = read_training_job(opened)
                    if job.namespace == options.namespace and options.job in (job.name, job.reference):
                        return uid
            kind, name = split_kind(options.job)
            found = archive.select(Filter("" if options.uid else options.namespace, name, kind=kind))
        finally:
            archive.close()
    except ArchiveError as error:
        raise exits.Failure(str(error)) from None
    return next((line.uid for line in found if line.uid.startswith(options.uid)), "")
