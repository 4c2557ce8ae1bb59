"""Find finished and stuck TrainJobs and orphans, show what would be deleted, and delete it.

Works with the local server and with any cluster (--kubeconfig), whichever controllers run there. Shows the plan and
asks before it deletes anything; in a script (no terminal) it needs --yes.

  trainmaster cleanup --older-than 7d                 TrainJobs that finished more than a week ago
  trainmaster cleanup --state Failed -l team=vision   only failed ones with that label
  trainmaster cleanup --orphans                       JobSets, Jobs, Pods and code whose TrainJob does not exist
  trainmaster cleanup --clear-finalizers --yes        TrainJobs whose deletion is blocked by a finalizer

Exit codes: 0 success, 1 refused, or something could not be deleted.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from trainmaster.cli import exits
from trainmaster.cli.cleaning import carry_out, make_plan
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.connection import add_cluster, call
from trainmaster.cli.servers.flags import add_namespaces
from trainmaster.cli.spans import parse_span
from trainmaster.cli.terminal import confirm
from trainmaster.jobs.janitor import FinishedJobFilter, Removal
from trainmaster.jobs.models.training import COMPLETE, FAILED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_cluster(parser)
    add_namespaces(parser, "only this namespace (default: all)", default="")
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="only TrainJobs with these labels")
    parser.add_argument("--state", choices=(COMPLETE, FAILED), default="", help="only TrainJobs in this state")
    parser.add_argument(
        "--older-than", default="0s", metavar="SPAN", help="only TrainJobs that finished longer ago than this: 30m, 7d"
    )
    parser.add_argument("--owner", default="", metavar="[KIND/]NAME", help="only TrainJobs owned by this object")
    parser.add_argument(
        "--orphans", action="store_true", help="children whose TrainJob no longer exists, instead of TrainJobs"
    )
    parser.add_argument(
        "--clear-finalizers",
        action="store_true",
        help="also TrainJobs whose deletion is blocked by finalizers of others",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    try:
        older_than = parse_span(options.older_than)
    except ValueError as error:
        raise exits.Failure(f"--older-than: {error}", exits.USAGE) from None
    wanted = FinishedJobFilter(options.state, older_than, options.owner)
    plan = call(context, options, lambda client: make_plan(client, options, wanted))
    _show(options, context, plan)
    if not plan or options.dry_run:
        return exits.OK
    if not confirm(
        context, f"delete {'this object' if len(plan) == 1 else f'these {len(plan)} objects'}?", yes=options.yes
    ):
        return exits.FAILED
    problems = call(context, options, lambda client: carry_out(client, plan))
    for problem in problems:
        context.note(f"trainmaster: {problem}")
    context.note(f"removed {len(plan) - len(problems)} of {len(plan)}")
    return exits.FAILED if problems else exits.OK


def _show(options: argparse.Namespace, context: CommandContext, plan: list[Removal]) -> None:
    if options.output != "table":
        print_data(context, [{**asdict(item), "gvr": item.gvr.qualified} for item in plan], options.output)
    elif plan:
        rows = [(item.gvr.plural, item.namespace, item.name, item.action, item.why) for item in plan]
        print_table(context, ("KIND", "NAMESPACE", "NAME", "ACTION", "WHY"), rows)
    else:
        context.note("nothing to clean up")
