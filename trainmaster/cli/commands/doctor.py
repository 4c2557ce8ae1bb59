"""Show what this machine supports, and its problems. Changes nothing; needs no running server.

  trainmaster doctor                          this machine
  trainmaster doctor --kubeconfig FILE        a cluster: what its operator needs, and whether it works
  trainmaster doctor trainjob NAME [-n NS]    why a TrainJob does not start, finish or get deleted
  trainmaster doctor pytorchjob NAME          the same for a job of another kind

Each finding about a TrainJob includes a command that fixes it.

Exit codes: 0 no findings, 1 a problem of the machine or cluster, or any finding about a TrainJob, 7 no such TrainJob.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from trainmaster.app.doctor import Diagnosis, examine
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.flags import add_settings, load_settings
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.flags import add_cluster, is_cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="*", metavar="trainjob NAME", help="check a TrainJob instead of this machine")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAME", help="namespace of the TrainJob")
    parser.add_argument(
        "--operator-namespace",
        default="trainmaster-system",
        metavar="NAME",
        help="of a cluster: the operator's own namespace (default: trainmaster-system)",
    )
    add_home(parser)
    add_cluster(parser)
    add_settings(parser)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.subject:
        # Imported here because checking the machine needs neither kinds nor a client.
        from trainmaster.cli.doctor import trainjob
        from trainmaster.jobs.kinds import find_kind

        reference = "/".join(options.subject)
        if reference.count("/") != 1 or find_kind(reference.partition("/")[0]) is None:
            raise exits.Failure("say `trainmaster doctor trainjob NAME`, or nothing for this machine", exits.USAGE)
        return trainjob.run(options, context, reference)
    if is_cluster(options):
        found = _examine_cluster(options, context)
    else:
        home = context.home(options)
        found = asyncio.run(examine(home, load_settings(options, context, home).settings))
    return _print(options, context, found)


def _examine_cluster(options: argparse.Namespace, context: CommandContext) -> list[Diagnosis]:
    # Imported here because it loads the operator, of which a machine needs nothing.
    from trainmaster.cli.servers.connection import call
    from trainmaster.kit.clock import SystemClock
    from trainmaster.operator.monitoring import doctor as cluster

    place: str = options.operator_namespace
    return call(context, options, lambda client: cluster.examine(cluster.ClusterFacts(client, place, SystemClock())))


def _print(options: argparse.Namespace, context: CommandContext, found: Sequence[Diagnosis]) -> int:
    problems = [line for line in found if line.state == "problem"]
    if options.output == "table":
        print_table(context, ("CHECK", "STATE", "SEEN"), [(line.check, line.state, line.seen) for line in found])
        advised = [line for line in found if line.advice]
        if advised:
            context.say()
        for line in advised:
            context.say(f"{line.check}: {line.advice}")
    else:
        print_data(context, {"healthy": not problems, "checks": [asdict(line) for line in found]}, options.output)
    return exits.FAILED if problems else exits.OK
