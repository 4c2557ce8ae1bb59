"""The files of the dashboard (docs/dashboard.md). Public: they are the same everywhere and tell nothing of a home.

Every path is exact, so none that does not exist is public.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request
from starlette.routing import Route

from trainmaster.rest.page_tree import PageFile, load_tree

_TREE = load_tree()
_FILES = {f"/ui/{_TREE.hash}/{name}": file for name, file in _TREE.files.items()}
PUBLIC = ("/", "/ui", "/ui/", *_FILES)
_FOR_EVER = "public, max-age=31536000, immutable"
# Everything comes from this server, nothing is evaluated, and no text can become markup or code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors {framed_by}; "
    "require-trusted-types-for 'script'; trusted-types ui"
)


def build_policy(frame_ancestors: tuple[str, ...] = ()) -> str:
    """The policy of the page. `frame_ancestors`: the sites that may show it in a frame."""
    named = ["'self'" if one == "self" else one for one in frame_ancestors]
    return _POLICY.format(framed_by=" ".join(named) or "'none'")


async def go_to_page(request: Request) -> Response:
    """Relative, so that it stays below the prefix of a proxy."""
    return Response(status_code=307, headers={"location": "ui/"})


async def read_index(request: Request) -> Response:
    policy = build_policy(request.app.state.backend.pages.frame_ancestors)
    return _build_answer(request, _TREE.index, {"cache-control": "no-store", "content-security-policy": policy})


async def read_file(request: Request) -> Response:
    # The policy too: a picture of ours that is opened as a page may do no more than the page.
    headers = {"cache-control": _FOR_EVER, "content-security-policy": build_policy()}
    return _build_answer(request, _FILES[request.scope["path"]], headers)


def _build_answer(request: Request, file: PageFile, headers: dict[str, str]) -> Response:
    content = file.content
    if not file.is_packed:
        headers["vary"] = "accept-encoding"
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"], content = "gzip", file.compressed
    return Response(content, media_type=file.media_type, headers=headers)


def accepts_gzip(accepted: str) -> bool:
    """From the header Accept-Encoding."""
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


router = APIRouter(
    include_in_schema=False,
    routes=[
        Route("/", go_to_page),
        Route("/ui", go_to_page),
        Route("/ui/", read_index),
        *(Route(path, read_file) for path in _FILES),
    ],
)
