"""Find finished and stuck TrainJobs and orphans, show what would be deleted, and delete it.

Works with the local server and with any cluster (--kubeconfig), whichever controllers run there. On a terminal the
plan is only shown until you add --yes; in a script (no terminal) objects are deleted, unless you pass --dry-run.

  trainmaster cleanup --older-than 7d                 TrainJobs that finished more than a week ago
  trainmaster cleanup --state Failed -l team=vision   only failed ones with that label
  trainmaster cleanup --orphans                       JobSets, Jobs and Pods whose TrainJob no longer exists
  trainmaster cleanup --clear-finalizers --yes        TrainJobs whose deletion is blocked by a finalizer
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from trainmaster.cli import exits
from trainmaster.cli.cleaning import carry_out, make_plan
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.connection import add_cluster, call
from trainmaster.cli.spans import parse_span
from trainmaster.jobs.janitor import FinishedJobFilter, Removal
from trainmaster.jobs.models.training import COMPLETE, FAILED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_cluster(parser)
    parser.add_argument("-n", "--namespace", default="", metavar="NAME", help="only this namespace (default: all)")
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
    parser.add_argument("--yes", action="store_true", help="delete without asking, also on a terminal")
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    try:
        older_than = parse_span(options.older_than)
    except ValueError as error:
        raise exits.Failure(f"--older-than: {error}", exits.USAGE) from None
    wanted = FinishedJobFilter(options.state, older_than, options.owner)
    plan = call(context, options, lambda client: make_plan(client, options, wanted))
    _show(options, context, plan)
    if not plan or options.dry_run or (not options.yes and sys.stdin is not None and sys.stdin.isatty()):
        if plan and not options.dry_run:
            context.note("nothing was deleted; add --yes to do it")
        return exits.OK
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
