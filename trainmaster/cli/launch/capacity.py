"""Checks that a job fits the machine at all, before it is submitted.

A job that only has to wait for others is submitted; its `status.waiting` says what it waits for.
"""

from __future__ import annotations

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import NODES
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.client.contract import Client
from trainmaster.jobs.compose.request import JobRequest


async def check_capacity(client: Client, request: JobRequest) -> None:
    """Failure if the job could not run even on an idle machine."""
    try:
        nodes = (await client.list(NODES)).items
    except StatusError:
        return  # not every user may read nodes; the scheduler reports it too
    if (text := explain_room(request, nodes)) is not None:
        raise exits.Failure(text, exits.RUN_REFUSED)


def _show(amount: str) -> str:
    """24581700Ki as 23.4Gi; small amounts and other resources unchanged."""
    size = quantity.parse(amount)
    if not amount.endswith("Ki") or size < 1 << 30:
        return amount
    return f"{float(size / (1 << 30)):.1f}Gi"


def explain_room(request: JobRequest, nodes: list[Object]) -> str | None:
    """Why the job can never run on these nodes; None if each amount by itself fits."""
    limits = [str(read_fields(node, "status", "allocatable").get("pods", "")) for node in nodes]
    if limits and all(limits) and (limit := int(sum(map(quantity.parse, limits)))) < request.nodes:
        text = f"{request.nodes} nodes can never run here: at most {limit} Pods run at the same time"
        return f"{text} (setting node.pods); use --nodes {limit} or less"
    for name, amount in request.resources.items():
        is_shared = name == "cpu" and request.overcommits
        each = quantity.parse("0" if is_shared else str(amount))
        offered = [str(read_fields(node, "status", "allocatable").get(name, "0")) for node in nodes]
        fitting = sum(int(quantity.parse(total) // each) for total in offered) if each > 0 else request.nodes
        if fitting >= request.nodes:
            continue
        most = max(offered, key=quantity.parse, default="0")
        option = {"cpu": "--cpu", "memory": "--memory"}.get(name, "--gpu")
        text = f"{request.nodes} node{'s' * (request.nodes != 1)} with {amount} {name} each can never run here: "
        if not quantity.parse(most):
            return f"{text}this machine has no {name}; leave out {option}"
        helps = f"use --nodes {fitting}, or a smaller {option}" if fitting else f"use a smaller {option}"
        shares = ", or --overcommit to let the nodes share the CPUs" if name == "cpu" else ""
        return f"{text}the machine has {_show(most)} for jobs; {helps}{shares}"
    return None
