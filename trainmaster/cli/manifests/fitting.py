"""What `trainmaster check` compares jobs with: the queue of a running server, else this machine.

A server of the home is asked if one is running; `--kubeconfig` and `--context` select any other. The scheduler then
predicts the start on a copy of the server's queue. Without a server, it does so for an idle machine as a server with
the settings of the home would describe it.
"""

from __future__ import annotations

import argparse

from trainmaster.api.pods.requests import CPU, GPU, read_amounts
from trainmaster.api.resources import NODES
from trainmaster.app.checking.comparing import ComparedMachine, compare_with_server, join_overcommit
from trainmaster.app.home.folder import HomeError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers.connection import call, get_server, is_cluster
from trainmaster.client.contract import Client
from trainmaster.client.listed import ListedView
from trainmaster.controllers.explain.gathering import collect
from trainmaster.controllers.scheduler.sentences import name_amount
from trainmaster.jobs.models.nodes import Node
from trainmaster.kit.clock import SystemClock


def choose_machine(options: argparse.Namespace, context: CommandContext, namespaces: set[str]) -> ComparedMachine:
    """`namespaces`: those of the objects, whose quotas count; "" for the namespace of the options."""
    is_given = is_cluster(options) or context.serve is not None
    try:
        if is_given or context.home(options).find_running() is not None:
            return _ask_server(options, context, namespaces)
        why = "no server is running"
    except exits.Failure as error:
        if is_given:
            raise
        why = str(error)
    except HomeError as error:
        why = str(error)
    return _read_own(options, context, why)


def _ask_server(options: argparse.Namespace, context: CommandContext, namespaces: set[str]) -> ComparedMachine:
    config = get_server(context, options)
    wanted = {namespace or str(options.namespace) for namespace in namespaces}

    async def work(client: Client) -> ListedView:
        return await collect(client, next(iter(wanted)) if len(wanted) == 1 else "")

    return compare_with_server(call(context, options, work), config.server)


def _read_own(options: argparse.Namespace, context: CommandContext, why: str) -> ComparedMachine:
    # Imported here because a running server describes its machine itself.
    from trainmaster.app.node import build_own_node
    from trainmaster.cli.flags import load_settings

    home = context.home(options)
    settings = load_settings(options, context, home).settings
    try:
        raw = build_own_node(settings.node, home.root, SystemClock().now())
    except HomeError as error:
        raise exits.Failure(str(error), exits.USAGE) from None
    node, amounts = Node(raw), read_amounts(Node(raw).allocatable)
    gpus = name_amount(GPU, amounts[GPU]) if amounts.get(GPU) else "no GPUs"
    has = f"{name_amount(CPU, amounts.get(CPU, 0))}, {name_amount('memory', amounts.get('memory', 0))}, {gpus}"
    return ComparedMachine(
        ListedView({NODES: [raw]}), join_overcommit(f"{why}: compared with this machine ({has})", node), False
    )
