"""List the runtimes that TrainJobs can use: framework, nodes, and which TrainJobs use each.

  trainmaster runtimes                        cluster-wide runtimes and those of the namespace
  trainmaster runtimes torch-distributed      one of them; -o yaml for the whole object

A TrainJob refers to one in `spec.runtimeRef`. Change one with `kubectl edit clustertrainingruntime NAME`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from trainmaster.api.labels import FRAMEWORK
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.training.steps import read_framework
from trainmaster.cli import exits
from trainmaster.cli.context import OBJECT_FORMS, CommandContext, add_output
from trainmaster.cli.jobs import list_near, show_age
from trainmaster.cli.output import print_objects, print_table
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.client.contract import Client
from trainmaster.jobs.lookups import uses_runtime
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock

_SHOWN = 3
_CLUSTER_WIDE = "ClusterTrainingRuntime"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="RUNTIME", help="only these runtimes")
    add_server(parser, all_namespaces=True)
    add_output(parser, OBJECT_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    async def work(client: Client) -> tuple[list[Object], list[Object]]:
        wide, narrow, jobs = await asyncio.gather(
            client.list(CLUSTER_TRAINING_RUNTIMES),
            client.list(TRAINING_RUNTIMES, options.namespace),
            # Cluster-wide runtimes are used from all namespaces; users without access to those see only their own.
            client.list(TRAIN_JOBS, options.namespace),
        )
        return [*wide.items, *narrow.items], jobs.items

    runtimes, jobs = call(context, options, work)
    if options.names:
        known = [runtime["metadata"]["name"] for runtime in runtimes]
        for name in options.names:
            if name not in known:
                near = list_near(name, known)
                hint = f"; did you mean {' or '.join(near)}?" if near else ": `trainmaster runtimes` lists them"
                raise exits.Failure(f'there is no runtime "{name}"{hint}', exits.NOT_FOUND)
        runtimes = [runtime for runtime in runtimes if runtime["metadata"]["name"] in options.names]
    if options.output in ("table", "wide"):
        _show(context, options, [TrainingRuntime(one) for one in runtimes], [TrainJob(job) for job in jobs])
    else:
        single = len(options.names) == 1 and len(runtimes) == 1
        gvrs = {_CLUSTER_WIDE: CLUSTER_TRAINING_RUNTIMES}
        found = [(gvrs.get(one["kind"], TRAINING_RUNTIMES), one) for one in runtimes]
        print_objects(context, found, options.output, single=single)
    return exits.OK


def _show(
    context: CommandContext, options: argparse.Namespace, runtimes: list[TrainingRuntime], jobs: list[TrainJob]
) -> None:
    if not runtimes:
        context.note("there are no runtimes; `trainmaster submit -f RUNTIME.yaml` makes one")
        return
    now, wide = SystemClock().now(), options.output == "wide"
    header = ["NAME", "NAMESPACE", "FRAMEWORK", "NODES", *(["POLICY", "RESTARTS"] if wide else []), "AGE", "IN USE BY"]
    rows = []
    for runtime in runtimes:
        policy = read_framework(runtime.raw)[0] or "-"
        rows.append(
            [
                runtime.name,
                runtime.namespace or "(all)",
                runtime.labels.get(FRAMEWORK, "-"),
                str(runtime.ml_policy.get("numNodes") or "-"),
                *([policy, str(runtime.max_restarts)] if wide else []),
                show_age(runtime.created_at, now),
                _describe_use(runtime, jobs),
            ]
        )
    print_table(context, header, rows)


def _describe_use(runtime: TrainingRuntime, jobs: Sequence[TrainJob]) -> str:
    users = [job for job in jobs if uses_runtime(job, runtime)]
    if not users:
        return "-"
    active = [job.name for job in users if not job.is_finished]
    over = len(users) - len(active)
    named = ", ".join(active[:_SHOWN]) + (f" and {len(active) - _SHOWN} more" if len(active) > _SHOWN else "")
    ended = f"{over} ended" if over else ""
    return "; ".join(text for text in (named, ended) if text)
