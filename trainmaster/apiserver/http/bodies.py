"""Parses request bodies into objects: JSON, Kubernetes protobuf, and YAML for patches and manual requests.

Refuses with 400 what is not an object, nested too deeply, or not text; with 415 unsupported media types. Code behind
this module never sees raw bytes of a caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import orjson

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.apiserver.admission import sizes
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.client.contract import PatchType

_PROTOBUF_MAGIC = b"k8s\x00"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_BODY_TYPES = ("application/json", "application/yaml", _PROTOBUF)

_PATCHES = {
    "application/json-patch+json": PatchType.JSON,
    "application/merge-patch+json": PatchType.MERGE,
    "application/strategic-merge-patch+json": PatchType.STRATEGIC,
    "application/apply-patch+yaml": PatchType.APPLY,
    "application/apply-patch+json": PatchType.APPLY,
}
_PROTOBUF_FIELDS = 4
"""Maximum number of messages around a value: a list of maps has three."""
_MOST_OPERATIONS = 10_000
_VALUES_OF_AN_OPERATION = 4
"""The operation itself, op, path and from."""


def media_type(header: str | None) -> str:
    return (header or "").partition(";")[0].strip().lower()


def parse_json(body: bytes, limits: ApiLimits, most_values: int = 0) -> object:
    """Raises 400 or 413 if it is not JSON, too deep, or has more values than `most_values` (or the limit)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    depth = limits.json_depth
    # A document with fewer brackets than levels cannot be too deep; this avoids the walk for nearly every body.
    if body.count(b"{") + body.count(b"[") > depth and _is_deeper(value, depth):
        raise status.bad_request(f"json parse error: exceeded max depth {depth} (limits.json_depth)")
    most_values = most_values or limits.object_values
    if sizes.has_more_values(value, body, most_values):
        raise sizes.refuse_values(most_values)
    return value


_WRITER_DEPTH = 254
"""orjson's own limit. A walk in Python would take a second for what orjson does in milliseconds."""


def _is_deeper(value: object, depth: int) -> bool:
    for _ in range(_WRITER_DEPTH - depth):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


_MOST_DUPLICATES = 100
"""Reported in one answer, as upstream."""
_LONGEST_PATH = 1024


class _Fields(dict[str, object]):
    """An object that remembers which of its keys occurred twice."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.repeated: dict[str, None] = {}
        if len(self) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.repeated[key] = None
                seen.add(key)


def list_duplicates(body: bytes) -> list[str]:
    """Paths of the first hundred fields that occur more than once in a JSON text that `parse_json` accepted.

    Parses again with the standard library, which shows all pairs; only for callers that asked for field validation.
    """
    try:
        return list(islice(_walk_duplicates(json.loads(body, object_pairs_hook=_Fields), ""), _MOST_DUPLICATES))
    except (ValueError, RecursionError):
        return []


def _walk_duplicates(value: object, path: str) -> Iterator[str]:
    if isinstance(value, _Fields):
        prefix = f"{path}." if path else ""
        for key, child in value.items():
            name = (prefix + key)[:_LONGEST_PATH]
            if isinstance(child, dict | list):
                yield from _walk_duplicates(child, name)
            if key in value.repeated:
                yield name
    elif isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, dict | list):
                yield from _walk_duplicates(child, f"{path}[{index}]"[:_LONGEST_PATH])


def parse_yaml(body: bytes, limits: ApiLimits) -> object:
    """JSON is tried first, because the apply bodies of all known clients are JSON."""
    too_long = len(body) > limits.yaml_bytes
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return parse_json(body, limits)
        except status.StatusError:
            if too_long:
                raise
    if too_long:
        text = f"the limit for YAML is {limits.yaml_bytes} bytes (limits.yaml_bytes); send it as JSON"
        raise status.StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")
    from trainmaster.api.formats import yaml_documents  # noqa: PLC0415 - only few requests bring YAML

    try:
        return yaml_documents.parse(body, limits.json_depth, limits.object_values)
    except yaml_documents.YamlRefused as error:
        raise status.bad_request(f"error converting YAML to JSON: {error}") from None


def parse_object(body: bytes, content_type: str | None, limits: ApiLimits) -> Object:
    """The object in the body of a create, update or delete."""
    if body.startswith(_PROTOBUF_MAGIC):
        from trainmaster.api.formats import protobuf  # noqa: PLC0415 - its tables are for kubectl >= 1.32 only

        decoded = protobuf.decode(body, limits.object_values * _PROTOBUF_FIELDS)
        if _is_deeper(decoded, limits.json_depth):
            raise status.bad_request(f"protobuf: exceeded max depth {limits.json_depth} (limits.json_depth)")
        _check_size(decoded, limits)
        return decoded
    media = media_type(content_type)
    if media in _YAML:
        value = parse_yaml(body, limits)
    elif media == _PROTOBUF:
        raise status.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    elif media in ("", "application/json") or media.endswith("+json"):
        value = parse_json(body, limits)
    else:
        raise status.unsupported_media_type(_BODY_TYPES)
    if not isinstance(value, dict):
        raise status.bad_request(f"couldn't get version/kind; json: cannot unmarshal {_go_name(value)} into an object")
    if len(body) > limits.object_bytes:
        _check_size(value, limits)
    return value


def _check_size(value: Object, limits: ApiLimits) -> None:
    raw = orjson.dumps(value)
    if len(raw) > limits.object_bytes:
        raise sizes.refuse_bytes(len(raw), limits.object_bytes)
    if sizes.has_more_values(value, raw, limits.object_values):
        raise sizes.refuse_values(limits.object_values)


def parse_patch(body: bytes, content_type: str | None, limits: ApiLimits) -> tuple[PatchType, object]:
    patch_type = _PATCHES.get(media_type(content_type))
    if patch_type is None:
        raise status.unsupported_media_type(tuple(_PATCHES)[:4])
    if patch_type is PatchType.APPLY:
        value = parse_yaml(body, limits)
    elif patch_type is PatchType.MERGE or patch_type is PatchType.STRATEGIC:
        value = parse_json(body, limits)
    else:
        value = parse_json(body, limits, limits.object_values + _MOST_OPERATIONS * _VALUES_OF_AN_OPERATION)
        if not isinstance(value, list):
            raise status.bad_request(f"error decoding patch: json: cannot unmarshal {_go_name(value)} into a list")
        if len(value) > _MOST_OPERATIONS:
            text = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(value)}"
            raise status.StatusError(413, "RequestEntityTooLarge", text)
        return patch_type, value
    if not isinstance(value, dict):
        raise status.bad_request(f"error decoding patch: json: cannot unmarshal {_go_name(value)} into an object")
    return patch_type, value


def _go_name(value: object) -> str:
    names = {list: "array", str: "string", bool: "bool", int: "number", float: "number", dict: "object"}
    return names.get(type(value), "null")
