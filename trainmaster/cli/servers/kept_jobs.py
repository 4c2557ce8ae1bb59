"""The uid of a job of a home, which names what is kept of it: of one that exists, or else from its record."""

from __future__ import annotations

import argparse

from trainmaster.api.status import NotFound
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers import connection as server
from trainmaster.client.contract import Client
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.jobs.kinds import read_training_job, split_kind
from trainmaster.jobs.lookups import get_training_job


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
