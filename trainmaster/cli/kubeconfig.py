"""Print the path of the owner's kubeconfig, for example for `export KUBECONFIG=$(trainmaster kubeconfig)`.

--raw prints its content instead. It holds a credential: keep it private.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import Context, add_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("--raw", action="store_true", help="print the content instead of the path")


def run(options: argparse.Namespace, context: Context) -> int:
    home = context.home(options)
    if not home.kubeconfig.exists():
        raise exits.Failure(
            f"there is no kubeconfig in {home.root} yet: `trainmaster up` writes it at the first start",
            exits.NOT_RUNNING,
        )
    if options.raw:
        context.out.write(home.kubeconfig.read_text())
    else:
        context.say(str(home.kubeconfig))
    return exits.OK
