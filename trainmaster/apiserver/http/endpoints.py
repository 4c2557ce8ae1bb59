"""Everything except resources: version, health, metrics, discovery, OpenAPI.

Documents are built on first use and kept with their ETag, because clients request them with every command and accept
304.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from trainmaster.api import status
from trainmaster.api.declaring import discovery
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.apiserver.http.messages import JSON, TEXT, ApiRequest, Response, header_line
from trainmaster.apiserver.http.negotiate import find_discovery_version
from trainmaster.kit.metrics import Metrics
from trainmaster.version import __version__

if TYPE_CHECKING:
    from trainmaster.api import openapi

MINOR = "33"
"""The Kubernetes minor whose wire features are implemented; the Google Cloud SDK's kubectl picks its client by it."""

_IMMUTABLE = b"Cache-Control: public, immutable\r\nExpires: Fri, 01 Jan 2100 00:00:00 GMT\r\nVary: Accept\r\n"

Check = Callable[[], str]
"""A health check: "" if healthy, otherwise the reason."""


@dataclass(frozen=True, slots=True)
class StaticDocument:
    body: bytes
    etag: str
    content_type: bytes = JSON


def make_document(body: bytes, content_type: bytes = JSON) -> StaticDocument:
    return StaticDocument(body, hashlib.sha256(body).hexdigest()[:32].upper(), content_type)


class Endpoints:
    def __init__(
        self,
        catalogue: Catalogue,
        metrics: Metrics,
        *,
        ready: Mapping[str, Check] | None = None,
        live: Mapping[str, Check] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._metrics = metrics
        self._live: Mapping[str, Check] = {"ping": lambda: "", **(live or {})}
        self._ready: Mapping[str, Check] = {**self._live, **(ready or {})}
        self._documents: dict[str, StaticDocument] = {}
        self._building = threading.Lock()
        self._openapi_documents: openapi.Documents | None = None

    def handle(self, request: ApiRequest) -> Response | Awaitable[Response]:
        path = request.route.path
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        if path.startswith(("/healthz", "/livez", "/readyz")):
            return self._health(request, path)
        bare = path.rstrip("/")
        if bare == "/version":
            return Response(self._document("version", lambda: make_document(build_version())).body)
        if bare == "/metrics":
            return Response(self._metrics.render().encode(), content_type=b"text/plain; version=0.0.4; charset=utf-8")
        if bare.startswith("/openapi/"):
            return self._openapi(request, bare)
        if bare in ("", "/api", "/apis") or bare.startswith(("/api/", "/apis/")):
            return self._discovery(request, bare)
        raise status.unknown_path()

    def _document(self, name: str, build: Callable[[], StaticDocument]) -> StaticDocument:
        found = self._documents.get(name)
        if found is None:
            found = self._documents[name] = build()
        return found

    # Health

    def _health(self, request: ApiRequest, path: str) -> Response:
        area, _, name = path.lstrip("/").partition("/")
        if area not in ("healthz", "livez", "readyz"):
            raise status.unknown_path()
        checks = self._ready if area == "readyz" else self._live
        if name:
            if name not in checks:
                raise status.unknown_path()
            checks = {name: checks[name]}
        problems = {check: text for check, run in checks.items() if (text := run())}
        if not problems and not request.query.has("verbose"):
            return Response(b"ok", content_type=TEXT)
        lines = [f"[-]{check} failed: {problems[check]}" if check in problems else f"[+]{check} ok" for check in checks]
        lines.append(f"{area} check {'failed' if problems else 'passed'}")
        return Response("\n".join([*lines, ""]).encode(), 500 if problems else 200, content_type=TEXT)

    # Discovery

    def _discovery(self, request: ApiRequest, path: str) -> Response:
        if path == "":
            paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3",
                     "/readyz", "/version"]  # fmt: skip
            return Response(orjson.dumps({"paths": paths}))
        version = find_discovery_version(request.headers.get("accept")) if path in ("/api", "/apis") else ""
        if version:
            core = path == "/api"
            content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()
            document = self._document(
                f"{path} {version}",
                lambda: make_document(
                    orjson.dumps(discovery.aggregated(self._catalogue, core=core, version=version)), content_type
                ),
            )
        else:
            document = self._document(path, lambda: make_document(self._legacy(path)))
        return self._conditional(request, document, b"Cache-Control: public\r\nVary: Accept\r\n")

    def _legacy(self, path: str) -> bytes:
        answer = discovery.legacy(self._catalogue, path)
        if answer is None:
            raise status.unknown_path()
        return orjson.dumps(answer)

    # OpenAPI

    async def _openapi(self, request: ApiRequest, path: str) -> Response:
        document = self._documents.get(self._openapi_name(request, path))
        if document is None:
            # Building takes tens of milliseconds once; other requests are served meanwhile.
            loop = asyncio.get_running_loop()
            document = await loop.run_in_executor(None, self._build_openapi, request, path)
        if path.startswith("/openapi/v3/") and request.query.has("hash"):
            # The URL changes with the content, so the client may cache it forever.
            return self._conditional(request, document, _IMMUTABLE)
        return self._conditional(request, document, b"Cache-Control: no-cache, private\r\nVary: Accept\r\n")

    def _openapi_name(self, request: ApiRequest, path: str) -> str:
        if path == "/openapi/v2" and "protobuf" in request.headers.get("accept", ""):
            return "/openapi/v2 protobuf"
        return path

    def _build_openapi(self, request: ApiRequest, path: str) -> StaticDocument:
        from trainmaster.api import openapi  # noqa: PLC0415 - only kubectl and generators ask for these documents

        with self._building:
            if self._openapi_documents is None:
                self._openapi_documents = openapi.Documents(self._catalogue)
            source = self._openapi_documents
            name = self._openapi_name(request, path)
            if name == "/openapi/v2 protobuf":
                return self._document(name, lambda: make_document(source.v2_protobuf(), openapi.V2_PROTOBUF.encode()))
            if path == "/openapi/v2":
                return self._document(name, lambda: make_document(source.v2_json()))
            if path == "/openapi/v3":
                return self._document(name, lambda: make_document(source.index()))
            body = source.find(path.removeprefix("/openapi/v3/"))
            if body is None:
                raise status.unknown_path()
            return self._document(name, lambda: make_document(body))

    def _conditional(self, request: ApiRequest, document: StaticDocument, headers: bytes) -> Response:
        etag = f'"{document.etag}"'
        headers = header_line("ETag", etag) + headers
        if etag in request.headers.get("if-none-match", ""):
            return Response(b"", 304, content_type=document.content_type, headers=headers)
        return Response(document.body, content_type=document.content_type, headers=headers)


_GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Kubernetes' names of architectures; clients compare them with their own."""


def build_version() -> bytes:
    machine = platform.machine()
    return orjson.dumps(
        {
            "major": "1",
            "minor": MINOR,
            "gitVersion": f"v1.{MINOR}.0-trainmaster.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{platform.python_version()}",
            "compiler": platform.python_implementation().lower(),
            "platform": f"{platform.system().lower()}/{_GO_MACHINES.get(machine, machine)}",
        }
    )
