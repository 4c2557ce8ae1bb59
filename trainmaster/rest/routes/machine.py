"""The nodes, and the queue of what waits for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.machine import DrainAnswer, DrainRequest, NodeDetail, Nodes, Queue
from trainmaster.rest.problems import not_found
from trainmaster.rest.routes.jobs import Namespace
from trainmaster.rest.services import drains
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


@router.get("/nodes/{name}/drain", summary="How far a drain is")
async def read_node_drain(name: NodeName, caller: CallerOf, backend: BackendOf) -> DrainAnswer:
    await drains.check(caller, backend, name)
    return await drains.read(caller)


@router.post("/nodes/{name}/drain", summary="Let all jobs save and stop, and start nothing", status_code=202)
async def drain_node(
    name: NodeName, caller: CallerOf, backend: BackendOf, body: DrainRequest | None = None
) -> DrainAnswer:
    """For administrators of a home (docs/maintenance.md). Answers at once, and can be repeated."""
    await drains.check(caller, backend, name)
    return await drains.start(caller, backend, "" if body is None else body.reason)


@router.post("/nodes/{name}/undrain", summary="End the drain: jobs continue where they were")
async def undrain_node(name: NodeName, caller: CallerOf, backend: BackendOf) -> DrainAnswer:
    """For administrators of a home. `suspended` lists what is resumed. Can be repeated."""
    await drains.check(caller, backend, name)
    return await drains.end(caller)


@router.get("/queue", summary="What waits, in order, and why")
async def read_queue(caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> Queue:
    """Administrators who leave out `namespace` get all. Nothing names jobs that the caller may not read."""
    everywhere = namespace is None and caller.tenant is None
    space = "" if everywhere else find_namespace(caller, namespace)
    await check_reader(caller, space)
    return Queue(**await backend.queue(caller.client, space))
