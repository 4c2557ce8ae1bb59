"""The documentation pages at /docs, and the OpenAPI document that they show. Public and self-contained."""

from __future__ import annotations

from functools import cache
from importlib import resources

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)
_FILES = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8"),
}
PUBLIC = ("/openapi.json", *_FILES)
# Only scripts, styles and requests of this server are allowed; the page cannot be framed and sends no forms.
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"  # noqa: E501  # one header


@router.get("/openapi.json")
async def read_document(request: Request) -> Response:
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")


@router.get("/docs")
@router.get("/docs/docs.js")
@router.get("/docs/docs.css")
async def read_page(request: Request) -> Response:
    file, media_type = _FILES[request.url.path]
    return Response(_load(file), media_type=media_type, headers={"content-security-policy": _POLICY})


@cache
def _load(file: str) -> bytes:
    return resources.files("trainmaster").joinpath("rest", "pages", file).read_bytes()
