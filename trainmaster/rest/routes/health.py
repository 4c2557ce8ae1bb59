"""Whether the REST API is running, and whether the API server answers. Public; reveals nothing else."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from trainmaster.rest.context import BackendOf

router = APIRouter(tags=["health"])
PUBLIC = ("/healthz", "/readyz")


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="Is the process alive?")
async def check_health() -> Health:
    return Health()


@router.get("/readyz", summary="Does the server behind it answer?")
async def check_ready(backend: BackendOf) -> Health:
    await backend.check_ready()
    return Health()
