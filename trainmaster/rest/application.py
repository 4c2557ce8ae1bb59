"""The REST API as one ASGI application: the routes of `routes.table`, error handling, the OpenAPI document, the edge.

`app` imports this module at the first connection (it loads the web framework) and passes the application to `serving`.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from trainmaster.api.status import StatusError
from trainmaster.rest import openapi
from trainmaster.rest.contract import Backend
from trainmaster.rest.edge import Edge
from trainmaster.rest.problems import Problem, build_unexpected, from_status, from_validation
from trainmaster.rest.routes.table import PUBLIC, ROUTERS, RULES, list_methods
from trainmaster.rest.services.tenants import to_problem
from trainmaster.tenancy.errors import TenantError
from trainmaster.version import __version__


def build_routes(backend: Backend) -> FastAPI:
    """The routes without the edge, for tests and the OpenAPI document; `build_app` adds the edge."""
    # The framework's own pages load scripts from other servers; ours are in routes.docs.
    routes = FastAPI(
        title="Trainmaster",
        version=__version__,
        summary="Bring training code; the platform runs it on many nodes.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    routes.state.backend = backend
    for router in ROUTERS:
        routes.include_router(router)
    routes.add_exception_handler(Problem, _answer_problem)
    routes.add_exception_handler(StatusError, _answer_status)
    routes.add_exception_handler(TenantError, _answer_tenant)
    routes.add_exception_handler(RequestValidationError, _answer_validation)
    routes.add_exception_handler(HTTPException, _answer_http)
    routes.add_exception_handler(Exception, _answer_unexpected)
    openapi.install(routes, PUBLIC)
    return routes


def build_app(backend: Backend) -> Edge:
    return Edge(build_routes(backend), backend, RULES)


def _respond(request: Request, problem: Problem) -> Response:
    body = problem.to_body(str(getattr(request.state, "request_id", "")))
    return Response(body, problem.status, headers=problem.to_headers())


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _respond(request, error)


async def _answer_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, StatusError)
    return _respond(request, from_status(error))


async def _answer_tenant(request: Request, error: Exception) -> Response:
    assert isinstance(error, TenantError)
    return _respond(request, to_problem(error))


async def _answer_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(request, from_validation(error.errors(), request.headers.get("content-type", "")))


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    """The framework raises the error again after this answer, and the edge logs it."""
    return _respond(request, build_unexpected(str(request.state.request_id)))


async def _answer_http(request: Request, error: Exception) -> Response:
    """Errors raised by the framework itself: an unknown path or method, a body that is not UTF-8."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        problem = Problem(404, "not-found", f"there is no path {path}", hint="/docs lists all paths")
    elif error.status_code == 405:
        problem = Problem(405, "method-not-allowed", f"{path} has no method {request.method}", hint="see /docs")
    elif error.status_code == 400:
        problem = Problem(
            400, "bad-request", "the body is not JSON in UTF-8", hint="save the file as UTF-8 and send it again"
        )
    else:
        problem = Problem(error.status_code, "refused", str(error.detail))
    response = _respond(request, problem)
    if error.status_code == 405:
        # The framework lists only the methods of the first route with this path.
        response.headers["allow"] = ", ".join(list_methods(path))
    return response
