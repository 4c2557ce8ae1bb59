"""The OpenAPI 3.1 document: the framework's, with our error format and authentication.

Every operation may answer with a problem document; all except the public ones need a bearer token.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from trainmaster.rest.models.problems import ProblemDocument
from trainmaster.rest.problems import MEDIA_TYPE

OpenApi: TypeAlias = dict[str, Any]
"""The document, or a part of it."""
Responses: TypeAlias = dict[int | str, OpenApi]
"""The responses of an operation by status code."""

_METHODS = ("get", "put", "post", "delete", "patch")
_REFERENCE = "#/components/schemas/{model}"


def install(routes: FastAPI, public: frozenset[str]) -> None:
    """Makes `routes.openapi()` return our document, which is built once."""

    def build() -> OpenApi:
        if routes.openapi_schema is None:
            routes.openapi_schema = build_document(routes, public)
        return routes.openapi_schema

    routes.openapi = build  # type: ignore[method-assign]


def build_document(routes: FastAPI, public: frozenset[str]) -> OpenApi:
    document = get_openapi(
        title=routes.title,
        version=routes.version,
        summary=routes.summary,
        description=routes.description,
        routes=routes.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for invented in ("HTTPValidationError", "ValidationError"):
        schemas.pop(invented, None)
    problem = ProblemDocument.model_json_schema(ref_template=_REFERENCE)
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "The same token as for the Kubernetes API."},
        "login": {
            "type": "apiKey",
            "in": "header",
            "name": "x-trainmaster-login",
            "description": "The key of a login of the dashboard; valid only with the cookie of that login.",
        },
    }
    document["security"] = [{"bearer": []}, {"login": []}]
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                _complete(item[method], path in public)
    return document


def _complete(operation: OpenApi, public: bool) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    content = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}}
    responses["default"] = {"description": "A problem: what is wrong, where, and what to do.", "content": content}
    if public:
        operation["security"] = []
