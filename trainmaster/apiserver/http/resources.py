"""The verbs on resources: decode, call the registry, encode.

All requests except lists, watches and deletions of collections are answered synchronously, without a task. The registry
returns stored bytes, which are parsed only for a Table, a PartialObjectMetadata or YAML.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from trainmaster.api import status
from trainmaster.api.declaring.discovery import STATUS_VERBS, list_subresources
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import NAMESPACES
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Call, ListPage, Registry, Written
from trainmaster.apiserver.http import bodies, forms, options
from trainmaster.apiserver.http.carrying import CarryResponse
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ApiRequest, Response, warning_lines
from trainmaster.apiserver.http.negotiate import Form, choose_form
from trainmaster.apiserver.http.routes import Route
from trainmaster.apiserver.http.streams.handler import UpgradeResponse
from trainmaster.apiserver.http.watching import StreamResponse, watch_stream
from trainmaster.client.contract import DeleteOptions, WriteOptions
from trainmaster.kit.clock import Clock

Outcome = Response | StreamResponse | UpgradeResponse[Any] | CarryResponse | Awaitable[Response]
Special = Callable[[ApiRequest, Kind], Outcome]
"""A handler for a subresource that the registry does not serve."""


_NAMED_VERBS = frozenset({"get", "update", "patch", "delete"})


class Resources:
    def __init__(self, registry: Registry, catalogue: Catalogue, limits: ApiLimits, clock: Clock) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._limits = limits
        self._clock = clock
        self.specials: dict[tuple[GVR, str], Special] = {}
        """(collection, subresource) -> its handler."""

    def handle(self, request: ApiRequest) -> Outcome:
        route = request.route
        kind = self._catalogue.find(route.gvr) if route.gvr is not None else None
        if kind is None or route.extra:
            raise status.unknown_path()
        special = self.specials.get((kind.gvr, route.subresource))
        if special is not None:
            self._check_scope(route, kind)
            return special(request, kind)
        namespace = self._check_scope(route, kind)
        self._check_verb(route, kind)
        verb = route.verb
        if verb == "get":
            written = self._registry.get(kind, namespace, route.name, subresource=route.subresource)
            return self._object(request, kind, written)
        if verb == "list":
            return self._list(request, kind, namespace)
        if verb == "watch":
            return self._watch(request, kind, namespace)
        if verb == "create":
            return self._create(request, kind, namespace)
        if verb == "update":
            return self._update(request, kind, namespace)
        if verb == "patch":
            return self._patch(request, kind, namespace)
        if verb == "delete":
            return self._delete(request, kind, namespace)
        if verb == "deletecollection":
            return self._delete_collection(request, kind, namespace)
        raise status.method_not_allowed()

    def _check_scope(self, route: Route, kind: Kind) -> str:
        """The namespace to use; raises 404 for paths that do not fit the kind's scope."""
        if not kind.namespaced:
            if route.namespace and not (kind.gvr == NAMESPACES):
                raise status.unknown_path()
            return ""
        if not route.namespace:
            if route.name:
                raise status.unknown_path()
            if route.verb not in ("list", "watch"):
                raise status.method_not_allowed()
        return route.namespace

    def _check_verb(self, route: Route, kind: Kind) -> None:
        verb, subresource = route.verb, route.subresource
        if subresource == "status" and kind.status:
            if (verb in STATUS_VERBS and verb in kind.verbs) or (verb == "create" and kind.custom):
                return
        elif subresource:
            for known in list_subresources(kind):
                if known.name == subresource:
                    if verb in known.verbs:
                        return
                    raise status.method_not_allowed()
            raise status.unknown_path()
        elif verb in kind.verbs and bool(route.name) is (verb in _NAMED_VERBS):
            return
        raise status.method_not_allowed(kind.read_only)

    # Reads

    def _object(
        self, request: ApiRequest, kind: Kind, written: Written, code: int = 200, headers: bytes = b""
    ) -> Response:
        accept = request.headers.get("accept")
        form = choose_form(accept)
        if form is Form.JSON:
            return Response(written.value, code, written.revision, headers=headers)
        if request.route.subresource == "scale":
            from trainmaster.api.kindsets.autoscaling_v1 import SCALE  # noqa: PLC0415 - few objects are scaled

            kind = SCALE
        body, content_type = forms.render_object(form, kind, written.value, request.query, self._clock)
        return Response(body, code, written.revision, content_type, headers)

    async def _list(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        form = choose_form(request.headers.get("accept"))
        page = await self._registry.list(kind, namespace, options.read_list_options(request.query))
        if len(page.values) > self._limits.list_items:
            # Not 429, because retrying would give the same answer.
            text = f"the list would hold {len(page.values)} items, more than {self._limits.list_items}; use limit"
            raise StatusError(413, "RequestEntityTooLarge", text)
        if form is Form.JSON and forms.is_long(page):
            return Response(b"", 200, page.revision, parts=forms.split_long_list(kind, page))
        return self._page(request, kind, page, form)

    def _page(self, request: ApiRequest, kind: Kind, page: ListPage, form: Form) -> Response:
        if form is Form.JSON:
            return Response(forms.join_list(kind, page), 200, page.revision)
        body, content_type = forms.render_page(form, kind, page, request.query, self._clock)
        return Response(body, 200, page.revision, content_type)

    def _watch(self, request: ApiRequest, kind: Kind, namespace: str) -> StreamResponse:
        form = choose_form(request.headers.get("accept"))
        asked = options.read_watch_options(request.query, name=request.route.name, longest=self._limits.watch_seconds)
        frames = self._registry.watch(kind, namespace, asked)
        return watch_stream(frames, form, kind, request.query, self._clock)

    # Writes

    def _call(self, request: ApiRequest) -> Call:
        return Call(request.identity, request.headers.get("user-agent", ""))

    def _object_in(self, request: ApiRequest, call: Call, asked: WriteOptions) -> Object:
        obj = self._body(request)
        if asked.field_validation in ("Strict", "Warn") and request.body.lstrip()[:1] == b"{":
            call.duplicates = bodies.list_duplicates(request.body)
        return obj

    def _body(self, request: ApiRequest) -> Object:
        return bodies.parse_object(request.body, request.headers.get("content-type"), self._limits)

    def _create(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        route = request.route
        asked = options.read_write_options(request.query, "CreateOptions")
        call = self._call(request)
        obj = self._object_in(request, call, asked)
        written = self._registry.create(
            call, kind, namespace, obj, asked, name=route.name, subresource=route.subresource
        )
        code = 200 if route.subresource == "status" else 201
        return self._object(request, kind, written, code, warning_lines(call.warnings) if call.warnings else b"")

    def _update(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        route = request.route
        asked = options.read_write_options(request.query, "UpdateOptions")
        call = self._call(request)
        obj = self._object_in(request, call, asked)
        written = self._registry.update(call, kind, namespace, route.name, obj, asked, subresource=route.subresource)
        code = 201 if written.created else 200
        return self._object(request, kind, written, code, warning_lines(call.warnings) if call.warnings else b"")

    def _patch(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        route = request.route
        asked = options.read_write_options(request.query, "PatchOptions")
        patch_type, patch = bodies.parse_patch(request.body, request.headers.get("content-type"), self._limits)
        call = self._call(request)
        written = self._registry.patch(
            call, kind, namespace, route.name, patch_type, patch, asked, subresource=route.subresource
        )
        code = 201 if written.created else 200
        return self._object(request, kind, written, code, warning_lines(call.warnings) if call.warnings else b"")

    def _delete_options(self, request: ApiRequest) -> DeleteOptions:
        body = self._body(request) if request.body else None
        wanted = options.read_delete_options(request.query, body)
        request.dry_run = wanted.dry_run
        return wanted

    def _delete(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        call = self._call(request)
        deleted = self._registry.delete(call, kind, namespace, request.route.name, self._delete_options(request))
        headers = warning_lines(call.warnings) if call.warnings else b""
        if deleted.gone:
            return Response(deleted.value, 200, deleted.revision, headers=headers)
        return self._object(request, kind, Written(deleted.value, deleted.revision), 200, headers)

    async def _delete_collection(self, request: ApiRequest, kind: Kind, namespace: str) -> Response:
        selection = options.read_list_options(request.query)
        page = await self._registry.delete_collection(
            self._call(request), kind, namespace, selection, self._delete_options(request)
        )
        return self._page(request, kind, page, Form.JSON)
