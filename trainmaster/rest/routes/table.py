"""All routers, and the paths that need no token. To add a group of paths, write a module and add a line here."""

from __future__ import annotations

import re

from fastapi.routing import APIRoute
from starlette.routing import Route

from trainmaster.rest.edge import PathRules
from trainmaster.rest.models.tenants import TokenAnswer
from trainmaster.rest.routes import (
    creating,
    diagnosis,
    docs,
    guide,
    health,
    history,
    jobs,
    live,
    logins,
    logs,
    machine,
    manifests,
    series,
    streams,
    tenants,
    ui,
)
from trainmaster.rest.routes.results import checkpoints, evidence, files

ROUTERS = (
    guide.router,
    creating.router,
    manifests.router,
    files.router,
    checkpoints.router,
    jobs.router,
    streams.router,
    logs.router,
    live.router,
    machine.router,
    diagnosis.router,
    evidence.router,
    history.router,
    series.router,
    tenants.router,
    logins.router,
    health.router,
    docs.router,
    ui.router,
)

PUBLIC = frozenset({*tenants.PUBLIC, *health.PUBLIC, *docs.PUBLIC, *logins.PUBLIC, *files.PUBLIC, *ui.PUBLIC})
"""Exact paths. Everything else, even paths that do not exist, needs a token."""


def _list_token_answers() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Routes whose answers contain a token, which must not cross the plain door."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    found = [route for route in routes if route.response_model is TokenAnswer]
    return tuple((method, route.path_regex) for route in found for method in sorted(route.methods or ()))


RULES = PathRules(PUBLIC, logins.HARMLESS | files.HARMLESS | manifests.HARMLESS, _list_token_answers())


def list_methods(path: str) -> list[str]:
    """The methods of all routes with this path, for the header Allow."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})
