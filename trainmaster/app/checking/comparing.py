"""What jobs are compared with to say when they would start: the queue of a server, or a machine.

Loads the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES
from trainmaster.client.listed import ListedView
from trainmaster.controllers.explain.forecast import StartForecast, forecast
from trainmaster.controllers.scheduler.reconciler import NODE
from trainmaster.controllers.scheduler.sentences import describe_overcommit
from trainmaster.jobs.models.nodes import Node
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.timeline import Now


@dataclass(frozen=True, slots=True)
class ComparedMachine:
    view: ListedView
    name: str
    """What was asked, as a sentence for users."""
    is_server: bool

    def predict(self, workload: Object) -> StartForecast | None:
        return forecast(self.view, workload, Now(SystemClock().now()))


def compare_with_server(view: ListedView, server: str) -> ComparedMachine:
    """`server`: its name for users."""
    node = view.find(NODES, "", NODE)
    if node is not None:
        return ComparedMachine(view, join_overcommit(f"asked the scheduler of {server}", Node(node)), True)
    reason = "it has a scheduler of its own" if view.list(NODES) else "you may not read its nodes and its queue"
    return ComparedMachine(view, f"did not ask whether jobs fit {server}: {reason}", True)


def join_overcommit(text: str, node: Node) -> str:
    """The text, with what the node shares if it is overcommitted."""
    shared = describe_overcommit(node)
    return f"{text}; {shared}" if shared else text
