"""List TrainJobs with their state and its reason, progress and age.

  trainmaster list                    in the namespace of the kubeconfig
  trainmaster list -A --watch         in all namespaces, with every change until Ctrl-C
  trainmaster list -l team=vision --state Failed
  trainmaster list -k pytorchjob

With --watch, -o json prints one object per line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import OBJECT_FORMS, CommandContext, add_output
from trainmaster.cli.jobtable import build_lines, count_shown, has_kinds, read_shown_states, show, sort
from trainmaster.cli.output import name_object, print_data
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.cli.servers.flags import add_kind
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.jobs.kinds import TRAINING_KINDS, find_kind, get_kind_name
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.training import STATES, TrainingJob, TrainingState
from trainmaster.kit.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kind(parser, "only jobs of this kind, such as pytorchjob (default: all)")
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="only jobs with these labels")
    parser.add_argument("--state", choices=STATES, help="only jobs in this state")
    parser.add_argument("-w", "--watch", action="store_true", help="print every change until Ctrl-C")
    add_server(parser, all_namespaces=True)
    add_output(parser, OBJECT_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    async def work(client: Client) -> tuple[list[TrainingJob], dict[str, int], dict[str, TrainingState]]:
        kind = find_kind(options.kind)
        jobs = await list_training_jobs(client, options.namespace, options.selector, kind)
        if options.watch:
            await Watcher(client, context, options, kinds=has_kinds(jobs)).run()
        states = await read_shown_states(client, jobs)
        chosen = [job for job in jobs if options.state in (None, states.get(job.uid, job.state).word)]
        return sort(chosen), await count_shown(client, options, chosen), states

    found, nodes, states = call(context, options, work)
    show(context, options, found, nodes, states)
    if not found and options.output in ("table", "wide"):
        where = f"in namespace {options.namespace}" if options.namespace else "in any namespace"
        more = "" if options.all_namespaces else "; -A lists all namespaces"
        kind = find_kind(options.kind)
        what = "training jobs" if kind is None else f"{get_kind_name(kind)}s"
        context.note(f"no {what} {where}{more}; `trainmaster submit -f FILE` makes one")
    return exits.OK


class Watcher:
    """Prints the current jobs, then a line for every visible change."""

    def __init__(self, client: Client, context: CommandContext, options: argparse.Namespace, *, kinds: bool) -> None:
        """`kinds`: whether to add a column for the kind, also before a job that is no TrainJob appears."""
        self._client, self._context, self._options, self._kinds = client, context, options, kinds
        kind = find_kind(options.kind)
        self._models = list(TRAINING_KINDS.values()) if kind is None else [kind]
        self._known: dict[str, TrainingJob] = {}
        self._nodes: dict[str, int] = {}
        """The number of nodes by uid; 0 if it cannot be found out."""
        self._states: dict[str, TrainingState] = {}
        """Those that others than the jobs know, by uid, as they were at the last change of the job."""
        self._shown: dict[str, str] = {}
        self._pending = set(self._models)
        """Kinds that have not been listed yet. Nothing is printed before, so that the header fits all rows."""
        self._troubled = False
        self._missing = 0
        """The number of kinds that the server does not serve or the caller may not list."""

    async def run(self) -> None:
        await asyncio.gather(*map(self._follow, self._models))

    async def _follow(self, model: type[TrainingJob]) -> None:
        # Imported here because only --watch needs it.
        from trainmaster.client.follow import follow

        async def begin(items: list[Object]) -> None:
            jobs = sort(map(model, items))
            await self._count(jobs)
            self._begin(model, jobs)

        async def change(event: WatchEvent) -> None:
            job = model(event.object)
            await self._count([job])
            self._change(job, gone=event.type == "DELETED")

        try:
            await follow(
                self._client,
                SystemClock(),
                model.gvr,
                begin,
                change,
                namespace=self._options.namespace,
                label_selector=self._options.selector,
                trouble=self._hear_trouble,
            )
        except StatusError as error:
            if error.code not in (403, 404):
                raise
            self._missing += 1
            if self._missing == len(self._models):
                raise
            self._arrive(model)

    async def _count(self, jobs: list[TrainingJob]) -> None:
        states = await read_shown_states(self._client, jobs)
        for job in jobs:
            self._states.pop(job.uid, None)
        self._states |= states
        unknown = [job for job in jobs if job.uid not in self._nodes]
        self._nodes |= {job.uid: 0 for job in unknown} | await count_shown(self._client, self._options, unknown)

    def _begin(self, model: type[TrainingJob], jobs: list[TrainingJob]) -> None:
        self._troubled = False
        seen = {job.uid for job in jobs}
        for uid in [uid for uid, job in self._known.items() if isinstance(job, model) and uid not in seen]:
            self._print(self._known.pop(uid), gone=True)
        self._known |= {job.uid: job for job in jobs}
        if self._pending:
            self._arrive(model)
            return
        for job in jobs:
            self._print(job)

    def _arrive(self, model: type[TrainingJob]) -> None:
        self._pending.discard(model)
        if self._pending:
            return
        self._print_header()
        for job in sort(self._known.values()):
            self._print(job)

    def _change(self, job: TrainingJob, *, gone: bool) -> None:
        if gone:
            self._known.pop(job.uid, None)
        else:
            self._known[job.uid] = job
        if self._pending:
            return
        if not self._kinds and has_kinds([job]):
            self._kinds = True
            self._print_header()
        self._print(job, gone=gone)

    def _print_header(self) -> None:
        if self._options.output in ("table", "wide"):
            self._context.say(self._build_lines(self._known.values())[0])

    def _print(self, job: TrainingJob, *, gone: bool = False) -> None:
        """Prints a row unless it looks the same as the last one of this job, apart from its age."""
        state = self._states.get(job.uid, job.state)
        if self._options.state not in (None, state.word):
            return
        form, uid = self._options.output, job.uid
        key = "gone" if gone else job.resource_version
        if form in ("table", "wide"):
            key = f"{gone} {state} {job.report}"
        if self._shown.get(uid) == key:
            return
        self._shown[uid] = key
        self._context.require_reader()
        if form == "json":
            self._context.say(json.dumps(job.raw, ensure_ascii=False))
        elif form == "yaml":
            self._context.say("---")
            print_data(self._context, job.raw, "yaml")
        elif form == "name":
            self._context.say(name_object(job.gvr, job.name))
        else:
            # The widths come from all known jobs, so that columns stay aligned.
            rest = [other for other in self._known.values() if other.uid != uid]
            shown, deleted = [job, *rest], [uid] if gone else []
            self._context.say(self._build_lines(shown, deleted)[1])

    def _build_lines(self, jobs: Iterable[TrainingJob], deleted: Iterable[str] = ()) -> list[str]:
        columns = (self._nodes, deleted, self._kinds)
        return build_lines(self._context, self._options, jobs, *columns, steady=True, states=self._states)

    def _hear_trouble(self, error: Exception) -> None:
        if isinstance(error, StatusError) and error.code in (401, 403, 404):
            raise error
        if not self._troubled:
            self._context.note("the server does not answer; asking again until it does (Ctrl-C ends this)")
        self._troubled = True
