"""Submit TrainJobs and other objects from manifests: files, directories or standard input.

  trainmaster submit -f train.yaml
  trainmaster submit -f manifests/ --wait
  cat train.yaml | trainmaster submit -f -

Files may contain several documents. All are read before the first is sent; runtimes and other objects are sent before
TrainJobs, whatever their order in the files. TrainJobs are created, so a TrainJob of that name must not exist. Other
objects are applied (created or changed). With --dry-run the server validates without storing.

Exit codes: 0 success (with --wait: all are complete), 1 refused (with --wait: one failed), 2 a file cannot be used,
6 timeout (--wait).
"""

from __future__ import annotations

import argparse

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.manifests.collections import get_resource
from trainmaster.cli.manifests.files import add_files, read_manifests
from trainmaster.cli.output import name_object, print_data
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.cli.waiting import COMPLETE, add_timeout, read_timeout, wait_for
from trainmaster.client.contract import Client
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.submission.ordering import Manifest, ManifestError
from trainmaster.jobs.submission.sending import DEPENDENT, describe_refusal, is_dependent, send_object

MANAGER = "trainmaster-submit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    parser.add_argument("--dry-run", action="store_true", help="let the server validate without storing")
    parser.add_argument("--wait", action="store_true", help="wait until the TrainJobs have finished")
    add_timeout(parser)
    add_server(parser)
    add_output(parser, ("table", "json", "yaml", "name"))


def run(options: argparse.Namespace, context: CommandContext) -> int:
    seconds = read_timeout(options)
    try:
        documents = read_manifests(context, options.file)
    except ManifestError as error:
        raise exits.Failure(str(error), exits.USAGE) from None
    named = options.namespace

    async def work(client: Client) -> list[str]:
        for document in documents:
            _place(document, named, options.namespace)
        made = await _send(client, documents, options, context)
        jobs = [TRAINING_KINDS[obj["kind"]](obj) for _, obj in made if obj["kind"] in TRAINING_KINDS]
        if not options.wait or options.dry_run or not jobs:
            return []
        return await wait_for(client, jobs, COMPLETE, seconds)

    problems = call(context, options, work)
    for problem in problems:
        context.note(f"trainmaster: {problem}; `trainmaster logs` and `trainmaster describe` say more")
    return exits.FAILED if problems else exits.OK


def _place(document: Manifest, named: str | None, namespace: str) -> None:
    own = document.obj["metadata"].get("namespace")
    if named and own and own != named:
        text = f"{document.place} is for namespace {own}, and -n says {named}: leave out one of the two"
        raise exits.Failure(text, exits.USAGE)
    document.namespace = own or namespace


async def _send(
    client: Client, documents: list[Manifest], options: argparse.Namespace, context: CommandContext
) -> list[tuple[GVR, Object]]:
    made: list[tuple[GVR, Object]] = []
    written: list[str] = []
    planned: set[str] = set()
    for document in documents:
        gvr, namespaced = await get_resource(client, document)
        namespace = document.namespace if namespaced else ""
        try:
            obj, verb = await send_object(
                client, gvr, document.obj, namespace, manager=MANAGER, dry_run=options.dry_run
            )
        except StatusError as error:
            if options.dry_run and is_dependent(error, planned):
                obj, verb = document.obj, DEPENDENT
            else:
                raise explain_refusal(document, error, written) from None
        planned.add(document.obj["metadata"].get("name", ""))
        made.append((gvr, obj))
        if verb != "unchanged" and not options.dry_run:
            written.append(name_object(gvr, obj["metadata"]["name"]))
        _tell(context, options, gvr, obj, verb)
    return made


def _tell(context: CommandContext, options: argparse.Namespace, gvr: GVR, obj: Object, verb: str) -> None:
    name = name_object(gvr, obj["metadata"].get("name", ""))
    if options.output == "name":
        context.say(name)
    elif options.output == "table":
        context.say(f"{name} {verb}{' (dry run)' if options.dry_run else ''}")
    else:
        if options.output == "yaml":
            context.say("---")
        print_data(context, obj, options.output)


def explain_refusal(document: Manifest, error: StatusError, written: list[str]) -> exits.Failure:
    """A Failure with the place in the file, the problem of each field, and what was already created."""
    name = document.obj["metadata"].get("name") or document.obj["metadata"].get("generateName", "")
    refusal = describe_refusal(error)
    summary = f": {terminal.clean(refusal.summary)}" if refusal.summary else ""
    lines = [f'{document.place}: {document.obj["kind"]} "{name}" was refused{summary}']
    lines += [f"  {path}: {message}" for path, message in refusal.fields]
    if refusal.exists:
        lines.append(f"  delete it first (`trainmaster delete {name}`), or submit under another name")
    elif refusal.hint:
        lines.append(f"  {refusal.hint}")
    if written:
        lines.append(f"  written before it: {', '.join(written)}")
    return exits.Failure("\n".join(lines))
