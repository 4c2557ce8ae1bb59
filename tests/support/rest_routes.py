"""The routes of the REST API as its own table has them, so that tests that go over all of them forget none."""

from __future__ import annotations

from fastapi.routing import APIRoute

from trainmaster.rest.routes.table import PUBLIC, ROUTERS

ALL_ROUTES = [
    (method, route.path)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
ROUTES = [(method, path) for method, path in ALL_ROUTES if path not in PUBLIC]
"""Those that need a token."""
