"""Print the path of the owner's kubeconfig, for example for `export KUBECONFIG=$(trainmaster kubeconfig)`.

--raw prints its content instead. --merge adds its context to your own kubeconfig (the first file of KUBECONFIG, else
~/.kube/config, or --to), for `kubectl --context trainmaster`; running it again updates the context. A copy of the file
is kept next to it. --remove removes what --merge added. The kubeconfig contains a credential: keep it private.
"""

from __future__ import annotations

import argparse
import re

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.kit.clock import SystemClock

_NAME = re.compile(r"[A-Za-z0-9._@:/-]{1,253}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--raw", action="store_true", help="print the content instead of the path")
    group.add_argument("--merge", action="store_true", help="add the context to your own kubeconfig")
    group.add_argument("--remove", action="store_true", help="remove it again")
    parser.add_argument("--to", default="", metavar="FILE", help="the kubeconfig to change (--merge, --remove)")
    parser.add_argument(
        "--name", default="trainmaster", metavar="NAME", help="name of the context (default: trainmaster)"
    )
    parser.add_argument("--use", action="store_true", help="make it the current context (--merge)")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    if options.remove:
        return _remove(options, context)
    if not home.kubeconfig.exists():
        raise exits.Failure(
            f"there is no kubeconfig in {home.root} yet: `trainmaster up` writes it at the first start",
            exits.NOT_RUNNING,
        )
    if options.merge:
        return _merge(options, context)
    if options.raw:
        context.write(home.kubeconfig.read_text())
    else:
        context.say(str(home.kubeconfig))
    return exits.OK


def _merge(options: argparse.Namespace, context: CommandContext) -> int:
    if not _NAME.fullmatch(options.name):
        raise exits.Failure(f"{options.name!r} is no name for a context: letters, digits and ._@:/-", exits.USAGE)
    home = context.home(options)
    # Imported here because it needs YAML, and most calls only print the path.
    from trainmaster.cli.installation import kubeconfig_merge as merging

    target = merging.choose_target(options.to, context.environ)
    merged = merging.merge_into(target, home.kubeconfig, home.root, options.name, use=options.use, clock=SystemClock())
    if not merged.changed:
        context.say(f'{target} has the context "{options.name}" of {home.root} already')
    else:
        context.say(f'put the context "{options.name}" into {target}')
        if merged.backup is not None:
            context.say(f"the file as it was: {merged.backup}")
    flag = "" if merged.is_current else f" --context {options.name}"
    context.say(f"try: kubectl{flag} get trainjobs")
    return exits.OK


def _remove(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    from trainmaster.cli.installation import kubeconfig_merge as merging

    target = merging.choose_target(options.to, context.environ)
    merged = merging.remove_from(target, home.root, clock=SystemClock())
    if not merged.changed:
        context.say(f"{target} has nothing of {home.root}")
        return exits.OK
    context.say(f"took {', '.join(merged.removed) or 'what was left of it'} out of {target}")
    if merged.backup is not None:
        context.say(f"the file as it was: {merged.backup}")
    return exits.OK
