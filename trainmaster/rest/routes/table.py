"""All routers, and the paths that need no token. To add a group of paths, write a module and add a line here."""

from __future__ import annotations

from fastapi.routing import APIRoute

from trainmaster.rest.routes import creating, docs, guide, health, history, jobs, live, streams, tenants

ROUTERS = (
    guide.router,
    creating.router,
    jobs.router,
    streams.router,
    live.router,
    history.router,
    tenants.router,
    health.router,
    docs.router,
)

PUBLIC = frozenset({*tenants.PUBLIC, *health.PUBLIC, *docs.PUBLIC})
"""Exact paths. Everything else, even paths that do not exist, needs a token."""


def list_methods(path: str) -> list[str]:
    """The methods of all routes with this path, for the header Allow."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})
