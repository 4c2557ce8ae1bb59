"""The nodes, and the queue of what waits for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.machine import NodeDetail, Nodes, Queue
from trainmaster.rest.problems import not_found
from trainmaster.rest.routes.jobs import Namespace
from trainmaster.rest.services.namespaces import check_reader, find_namespace

router = APIRouter(prefix="/api/v1", tags=["machine"])

NodeName = Annotated[str, Path(description="The node.", min_length=1, max_length=253)]


@router.get("/nodes", summary="What the machine has, and what is taken")
async def list_nodes(caller: CallerOf, backend: BackendOf) -> Nodes:
    """For callers who may list nodes; tenants of a home may not."""
    return Nodes(items=[NodeDetail(**node) for node in await backend.nodes(caller.client)])


@router.get("/nodes/{name}", summary="One node")
async def read_node(name: NodeName, caller: CallerOf, backend: BackendOf) -> NodeDetail:
    for node in await backend.nodes(caller.client):
        if node["name"] == name:
            return NodeDetail(**node)
    raise not_found(f"there is no node {name[:64]!r}", hint="GET /api/v1/nodes lists them")


@router.get("/queue", summary="What waits, in order, and why")
async def read_queue(caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> Queue:
    """Administrators who leave out `namespace` get all. Nothing names jobs that the caller may not read."""
    everywhere = namespace is None and caller.tenant is None
    space = "" if everywhere else find_namespace(caller, namespace)
    await check_reader(caller, space)
    return Queue(**await backend.queue(caller.client, space))
