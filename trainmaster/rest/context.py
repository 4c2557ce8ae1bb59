"""What routes can request by type: the backend, and the caller.

async def read(name: str, caller: CallerOf, backend: BackendOf) -> ...
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from trainmaster.rest.audit_trail import Trail
from trainmaster.rest.callers import Caller
from trainmaster.rest.contract import Backend
from trainmaster.rest.logins.logins import Credential


# Coroutines, because the framework runs plain functions in threads.
async def _provide_backend(request: Request) -> Backend:
    backend = request.app.state.backend
    assert isinstance(backend, Backend)
    return backend


async def _provide_caller(request: Request) -> Caller:
    """Set by the edge; public paths have none and must not request it."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


async def _provide_credential(request: Request) -> Credential:
    credential = request.state.credential
    assert isinstance(credential, Credential)
    return credential


async def _provide_trail(request: Request) -> Trail:
    trail = request.state.trail
    assert isinstance(trail, Trail)
    return trail


BackendOf = Annotated[Backend, Depends(_provide_backend)]
CallerOf = Annotated[Caller, Depends(_provide_caller)]
CredentialOf = Annotated[Credential, Depends(_provide_credential)]
"""How the caller was identified; for routes about logins only."""
TrailOf = Annotated[Trail, Depends(_provide_trail)]
"""For public paths, whose writes have no caller."""
