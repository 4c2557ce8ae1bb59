"""Request bodies to objects: JSON, Kubernetes protobuf, and YAML where a patch or a person sends it.

Refuses with 400 what is not an object, is nested too deeply, or is not text; with 415 what it can not read. Nothing
behind this module sees bytes of a caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.client.contract import PatchType

_PROTOBUF_MAGIC = b"k8s\x00"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_YAML_BYTES = 512 * 1024
"""Reading YAML costs a hundred times the CPU of JSON."""
_BODY_TYPES = ("application/json", "application/yaml", _PROTOBUF)

_PATCHES = {
    "application/json-patch+json": PatchType.JSON,
    "application/merge-patch+json": PatchType.MERGE,
    "application/strategic-merge-patch+json": PatchType.STRATEGIC,
    "application/apply-patch+yaml": PatchType.APPLY,
    "application/apply-patch+json": PatchType.APPLY,
}


def media_type(header: str | None) -> str:
    return (header or "").partition(";")[0].strip().lower()


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def parse_json(body: bytes, depth: int) -> Any:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    # A document with fewer brackets than levels cannot be too deep; this spares the walk for nearly every body.
    if body.count(b"{") + body.count(b"[") > depth and isinstance(value, dict | list) and _depth_exceeds(value, depth):
        raise status.bad_request(f"json parse error: exceeded max depth {depth}")
    return value


class _Fields(dict[str, Any]):
    """An object that remembers which of its keys were given twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen and key not in self.repeated:
                    self.repeated.append(key)
                seen.add(key)


def find_duplicates(body: bytes) -> list[str]:
    """Paths of fields that a JSON text gives more than once. For text that `parse_json` has accepted.

    A second reading by the standard library, which shows all pairs; only for callers that asked for field validation.
    """
    try:
        return list(_walk_duplicates(json.loads(body, object_pairs_hook=_Fields), ""))
    except (ValueError, RecursionError):
        return []


def _walk_duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Fields):
        prefix = f"{path}." if path else ""
        for key, child in value.items():
            yield from _walk_duplicates(child, prefix + key)
            if key in value.repeated:
                yield prefix + key
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk_duplicates(child, f"{path}[{index}]")


def parse_yaml(body: bytes, depth: int) -> Any:
    """JSON is tried first: apply bodies of all known clients are JSON text."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return parse_json(body, depth)
        except status.StatusError:
            if len(body) > _YAML_BYTES:
                raise
    if len(body) > _YAML_BYTES:
        raise status.too_large(_YAML_BYTES)
    import yaml  # noqa: PLC0415 - only few requests bring YAML, and the import costs start-up time

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # An alias lets a small document grow without bound when it is written out again.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, Loader=loader)):
            raise status.bad_request("error converting YAML to JSON: aliases are not supported")
        value = yaml.load(body, Loader=loader)
        return parse_json(orjson.dumps(value), depth)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise status.bad_request(f"error converting YAML to JSON: {type(error).__name__}") from None


def parse_object(body: bytes, content_type: str | None, depth: int) -> Object:
    """The object in the body of a create, an update or a delete."""
    if body.startswith(_PROTOBUF_MAGIC):
        from trainmaster.api import protobuf  # noqa: PLC0415 - its tables are for kubectl >= 1.32 only

        return protobuf.decode(body)
    media = media_type(content_type)
    if media in _YAML:
        value = parse_yaml(body, depth)
    elif media == _PROTOBUF:
        raise status.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    elif media in ("", "application/json") or media.endswith("+json"):
        value = parse_json(body, depth)
    else:
        raise status.unsupported_media_type(_BODY_TYPES)
    if not isinstance(value, dict):
        raise status.bad_request(f"couldn't get version/kind; json: cannot unmarshal {_go_name(value)} into an object")
    return value


def parse_patch(body: bytes, content_type: str | None, depth: int) -> tuple[PatchType, Any]:
    patch_type = _PATCHES.get(media_type(content_type))
    if patch_type is None:
        raise status.unsupported_media_type(tuple(_PATCHES)[:4])
    value = parse_yaml(body, depth) if patch_type is PatchType.APPLY else parse_json(body, depth)
    if patch_type is PatchType.JSON:
        if not isinstance(value, list):
            raise status.bad_request(f"error decoding patch: json: cannot unmarshal {_go_name(value)} into a list")
        if len(value) > 10_000:
            text = f"The allowed maximum operations in a JSON patch is 10000, got {len(value)}"
            raise status.StatusError(413, "RequestEntityTooLarge", text)
    elif not isinstance(value, dict):
        raise status.bad_request(f"error decoding patch: json: cannot unmarshal {_go_name(value)} into an object")
    return patch_type, value


def _go_name(value: Any) -> str:
    names = {list: "array", str: "string", bool: "bool", int: "number", float: "number", dict: "object"}
    return names.get(type(value), "null")
