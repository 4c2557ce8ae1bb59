"""Renders objects and lists in the requested form: stored JSON, YAML, Table, PartialObjectMetadata.

Plain JSON is assembled from stored bytes without parsing. The other forms parse each object once.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from trainmaster.api.declaring import tables
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.training import yaml_text
from trainmaster.apiserver.contract import Frame, ListPage
from trainmaster.apiserver.http.messages import JSON, Query
from trainmaster.apiserver.http.negotiate import Form
from trainmaster.kit.clock import Clock

CONTENT_TYPES = {
    Form.JSON: JSON,
    Form.YAML: b"application/yaml",
    Form.TABLE: JSON,
    Form.TABLE_BETA: JSON,
    Form.PARTIAL: JSON,
    Form.PARTIAL_LIST: JSON,
}
LONG_ITEMS = 2000
"""Longer lists are not joined, which would take more than a millisecond."""
LONG_BYTES = 1 << 20
_BLOCK_STYLE_BYTES = 256 * 1024
_TABLE_VERSIONS = {Form.TABLE: "meta.k8s.io/v1", Form.TABLE_BETA: "meta.k8s.io/v1beta1"}


def list_metadata(page: ListPage) -> Object:
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def join_list(kind: Kind, page: ListPage) -> bytes:
    return b"%b%b]}" % (_list_head(kind, page), b",".join(page.values))


def is_long(page: ListPage) -> bool:
    """Whether there are too many items or bytes to be joined."""
    return len(page.values) > LONG_ITEMS or sum(map(len, page.values)) > LONG_BYTES


def split_long_list(kind: Kind, page: ListPage) -> list[bytes]:
    """The same for many megabytes, in parts that are the stored objects themselves."""
    parts = [_list_head(kind, page)]
    for value in page.values:
        parts += (value, b",")
    parts[-1] = b"]}"
    return parts


def _list_head(kind: Kind, page: ListPage) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
        kind.list_kind.encode(),
        kind.api_version.encode(),
        orjson.dumps(list_metadata(page)),
    )


def _to_yaml(raw: bytes) -> bytes:
    """Large objects stay JSON, which is valid YAML: block style is for people, and slow."""
    return raw if len(raw) > _BLOCK_STYLE_BYTES else yaml_text.render(orjson.loads(raw)).encode()


def _table(form: Form, kind: Kind, objects: list[Object], metadata: Object, query: Query, clock: Clock) -> Object:
    table = tables.build_table(kind, objects, clock.now(), include=query.get("includeObject"), metadata=metadata)
    table["apiVersion"] = _TABLE_VERSIONS[form]
    return table


def render_object(form: Form, kind: Kind, raw: bytes, query: Query, clock: Clock) -> tuple[bytes, bytes]:
    """Body and content type of a single object."""
    if form is Form.YAML:
        return _to_yaml(raw), CONTENT_TYPES[form]
    obj: Object = orjson.loads(raw)
    if form in (Form.PARTIAL, Form.PARTIAL_LIST):
        return orjson.dumps(tables.build_partial(obj)), JSON
    version = obj.get("metadata", {}).get("resourceVersion", "")
    return orjson.dumps(_table(form, kind, [obj], {"resourceVersion": version}, query, clock)), JSON


def render_page(form: Form, kind: Kind, page: ListPage, query: Query, clock: Clock) -> tuple[bytes, bytes]:
    if form is Form.YAML:
        return _to_yaml(join_list(kind, page)), CONTENT_TYPES[form]
    objects = [orjson.loads(value) for value in page.values]
    metadata = list_metadata(page)
    answer: Object
    if form in (Form.PARTIAL, Form.PARTIAL_LIST):
        answer = tables.build_partial_list(objects, metadata)
    else:
        answer = _table(form, kind, objects, metadata, query, clock)
    return orjson.dumps(answer), JSON


def event_renderer(form: Form, kind: Kind, query: Query, clock: Clock) -> Callable[[Frame], bytes]:
    """Renders the events of one watch; column definitions are only in the first Table, as upstream."""
    first = True

    def render(frame: Frame) -> bytes:
        nonlocal first
        obj: Object = orjson.loads(frame.value)
        if form in (Form.PARTIAL, Form.PARTIAL_LIST):
            shown = tables.build_partial(obj)
        else:
            metadata = {"resourceVersion": obj.get("metadata", {}).get("resourceVersion", "")}
            if frame.type == "BOOKMARK":
                annotations = obj.get("metadata", {}).get("annotations")
                if annotations:
                    metadata["annotations"] = annotations
                rows: list[Object] = []
            else:
                rows = [obj]
            shown = _table(form, kind, rows, metadata, query, clock)
            if not first:
                shown["columnDefinitions"] = None
            first = False
        return b'{"type":"%b","object":%b}\n' % (frame.type.encode(), orjson.dumps(shown))

    return render
