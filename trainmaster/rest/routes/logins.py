"""Logins of the dashboard: begin one with a token or a one-time link, make such a link, log out."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import Response

from trainmaster.kit.clock import format_time
from trainmaster.rest.context import BackendOf, CallerOf, CredentialOf
from trainmaster.rest.logins.logins import LoginWish
from trainmaster.rest.logins.requests import build_use_tls
from trainmaster.rest.models.logins import LinkAnswer, LinkRequest, LoginAnswer, LoginRequest
from trainmaster.rest.problems import Problem

router = APIRouter(prefix="/api/v1", tags=["logins"])
PUBLIC = ("/api/v1/login",)
HARMLESS = frozenset({("POST", "/api/v1/logout")})
"""Writing methods that a read-only login may use."""


@router.post("/login", summary="Begin a login of the dashboard")
async def log_in(body: LoginRequest, backend: BackendOf, request: Request, response: Response) -> LoginAnswer:
    """Needs no token but in the body. The answer has one half of the login, its cookie the other."""
    address = request.client.host if request.client is not None else ""
    wish = LoginWish(address, request.scope["scheme"] != "https", body.path, body.read_only)
    if body.link:
        begun = await backend.logins.begin_with_link(body.link, wish)
    elif wish.is_plain:
        raise build_use_tls("tokens are not accepted over plain HTTP")
    else:
        begun = await backend.logins.begin_with_token(body.token, wish)
    response.headers["set-cookie"] = begun.cookie
    login = begun.login
    expires = format_time(datetime.fromtimestamp(login.ends, UTC))
    return LoginAnswer(key=begun.key, user=login.user, read_only=login.read_only, expires_at=expires)


@router.post("/logout", summary="End this login, also for copies of it", status_code=204)
async def log_out(caller: CallerOf, credential: CredentialOf, backend: BackendOf) -> Response:
    if credential.login is None:
        detail = "the request has a token, and only a login of the dashboard can be ended"
        raise Problem(400, "no-login", detail, hint="`trainmaster tenant rotate` makes tokens void")
    return Response(status_code=204, headers={"set-cookie": await backend.logins.end(credential.login)})


@router.post("/login-links", summary="Make a one-time link for a browser", status_code=201)
async def make_link(
    caller: CallerOf, credential: CredentialOf, backend: BackendOf, body: LinkRequest | None = None
) -> LinkAnswer:
    """Whoever opens it first, within two minutes, acts as the caller. `trainmaster dashboard` does this."""
    wanted = body or LinkRequest()
    made = await backend.logins.make_link(credential, caller, read_only=wanted.read_only)
    return LinkAnswer(link=made.text, expires_at=made.expires)
