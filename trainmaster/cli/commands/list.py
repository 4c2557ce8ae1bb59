"""List TrainJobs with their state and its reason, progress and age.

  trainmaster list                    in the namespace of the kubeconfig
  trainmaster list -A --watch         everywhere, and every change from now on, until Ctrl-C
  trainmaster list -l team=vision --state Failed

With --watch, -o json prints one object per line.
"""

from __future__ import annotations

import argparse
import json

from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import OBJECT_FORMS, CommandContext, add_output
from trainmaster.cli.jobtable import build_lines, show, sort
from trainmaster.cli.output import name_object, print_data
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.client.contract import Client, ListOptions, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.jobs.models.trainjobs import STATES, TrainJob
from trainmaster.kit.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="only TrainJobs with these labels")
    parser.add_argument("--state", choices=STATES, help="only those in this state")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with every change, until Ctrl-C")
    add_server(parser, all_namespaces=True)
    add_output(parser, OBJECT_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    async def work(client: Client) -> list[Object]:
        if options.watch:
            await Watcher(client, context, options).run()
        return (await client.list(TRAIN_JOBS, options.namespace, ListOptions(options.selector))).items

    found = [job for job in call(context, options, work) if options.state in (None, TrainJob(job).state.word)]
    show(context, options, sort(found))
    if not found and options.output in ("table", "wide"):
        where = f"in namespace {options.namespace}" if options.namespace else "in any namespace"
        more = "" if options.all_namespaces else "; -A lists all namespaces"
        context.note(f"no TrainJobs {where}{more}; `trainmaster submit -f FILE` makes one")
    return exits.OK


class Watcher:
    """Prints what there is, then a line for every change that shows."""

    def __init__(self, client: Client, context: CommandContext, options: argparse.Namespace) -> None:
        self._client, self._context, self._options = client, context, options
        self._known: dict[str, Object] = {}
        self._shown: dict[str, str] = {}
        self._began = self._troubled = False

    async def run(self) -> None:
        await follow(
            self._client,
            SystemClock(),
            TRAIN_JOBS,
            self._begin,
            self._change,
            namespace=self._options.namespace,
            label_selector=self._options.selector,
            trouble=self._hear_trouble,
        )

    async def _begin(self, items: list[Object]) -> None:
        self._troubled = False
        seen = {job["metadata"]["uid"] for job in items}
        for uid in [uid for uid in self._known if uid not in seen]:
            self._print(self._known.pop(uid), gone=True)
        for job in sort(items):
            self._known[job["metadata"]["uid"]] = job
        if not self._began:
            self._began = True
            if self._options.output in ("table", "wide"):
                self._context.say(build_lines(self._context, self._options, self._known.values())[0])
        for job in sort(items):
            self._print(job)

    async def _change(self, event: WatchEvent) -> None:
        uid, gone = event.object["metadata"]["uid"], event.type == "DELETED"
        if gone:
            self._known.pop(uid, None)
        else:
            self._known[uid] = event.object
        self._print(event.object, gone=gone)

    def _print(self, job: Object, *, gone: bool = False) -> None:
        """A change that does not show in the table is none to its reader; ages alone are no change."""
        if self._options.state not in (None, TrainJob(job).state.word):
            return
        form, uid = self._options.output, job["metadata"]["uid"]
        key = "gone" if gone else job["metadata"]["resourceVersion"]
        if form in ("table", "wide"):
            key = f"{gone} {TrainJob(job).state} {TrainJob(job).report}"
        if self._shown.get(uid) == key:
            return
        self._shown[uid] = key
        self._context.require_reader()
        if form == "json":
            self._context.say(json.dumps(job, ensure_ascii=False))
        elif form == "yaml":
            self._context.say("---")
            print_data(self._context, job, "yaml")
        elif form == "name":
            self._context.say(name_object(TRAIN_JOBS, job["metadata"]["name"]))
        else:
            # Widths come from all that is known, so that lines stay below their column.
            rest = [other for other in self._known.values() if other["metadata"]["uid"] != uid]
            self._context.say(build_lines(self._context, self._options, [job, *rest], [uid] if gone else [])[1])

    def _hear_trouble(self, error: Exception) -> None:
        if isinstance(error, StatusError) and error.code in (401, 403, 404):
            raise error
        if not self._troubled:
            self._context.note("the server does not answer; asking again until it does (Ctrl-C ends this)")
        self._troubled = True
