"""All routers, and the paths that need no token. A new group of paths is one module and one line here."""

from __future__ import annotations

from trainmaster.rest.routes import docs, guide, health, tenants

ROUTERS = (guide.router, tenants.router, health.router, docs.router)

PUBLIC = frozenset({*tenants.PUBLIC, *health.PUBLIC, *docs.PUBLIC})
"""Exact paths. Everything else, also what does not exist, needs a token."""
