"""JSON patch (RFC 6902): add, remove, replace, move, copy and test, in order, all or nothing.

Used for `application/json-patch+json`. The patch works on a copy; the given object and patch are not changed. A patch
that is not one is refused with 400; one that does not fit the object, a failed test included, with 422.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""What all `copy` operations of one patch may add; without it a short patch could double an object at each step."""

MAX_DEPTH = 200
"""Nesting of the patched document. Each body may be that deep, but moves and copies can stack one on the other, and the
JSON writer ends at 254."""

_NEEDS = {
    "add": ("value",),
    "remove": (),
    "replace": ("value",),
    "test": ("value",),
    "move": ("from",),
    "copy": ("from",),
}


def apply(obj: Object, patch: Any) -> Object:
    """`obj` after all operations."""
    operations = _check(patch)
    document = _Document(orjson.loads(orjson.dumps(obj)))
    for operation in operations:
        document.run(operation)
    result = document.root
    if not isinstance(result, dict):
        raise status.unfit_patch("the patched document is not an object")
    return result


def _check(patch: Any) -> list[dict[str, Any]]:
    if not isinstance(patch, list):
        text = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        raise status.bad_request(text)
    if len(patch) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise StatusError(413, "RequestEntityTooLarge", text)
    for operation in patch:
        if not isinstance(operation, dict):
            raise status.bad_request("error decoding patch: an operation of a JSON patch is an object")
        kind = operation.get("op")
        if not isinstance(kind, str) or kind not in _NEEDS:
            raise status.unfit_patch(f"Unexpected kind: {kind}")
        for name in ("path", *_NEEDS[kind]):
            if name not in operation:
                raise status.unfit_patch(f"{kind} operation does not have the member {name}")
            if name != "value" and not isinstance(operation[name], str):
                raise status.bad_request(f"error decoding patch: {name} must be a string")
    return patch


def _parse_pointer(text: str) -> list[str]:
    if not text:
        return []
    if text[0] != "/":
        raise status.unfit_patch(f'the path "{text}" does not start with a slash')
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _copied(value: Any) -> Any:
    """Later operations may change what an earlier one put in, and the patch may be used again after a conflict."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, dict | list) else value


def _measure_depth(value: Any) -> int:
    """How many objects and lists lie around the innermost value."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


class _Document:
    def __init__(self, root: Any) -> None:
        self.root = root
        self._copied_bytes = 0
        self._deepest = 0
        """An upper bound once something was moved. Walking through what is moved each time would be quadratic."""

    def run(self, operation: dict[str, Any]) -> None:
        path = _parse_pointer(operation["path"])
        match operation["op"]:
            case "add":
                self._note_depth(len(path) + _measure_depth(operation["value"]))
                self._add(path, _copied(operation["value"]))
            case "replace":
                self._note_depth(len(path) + _measure_depth(operation["value"]))
                self._replace(path, _copied(operation["value"]))
            case "remove":
                self._remove(path)
            case "test":
                self._test(path, operation["value"])
            case "move":
                self._move(_parse_pointer(operation["from"]), path)
            case "copy":
                self._copy(_parse_pointer(operation["from"]), path)

    def _parent(self, path: list[str]) -> Any:
        value = self.root
        for part in path[:-1]:
            value = self._child(value, part, path)
        if not isinstance(value, dict | list):
            raise self._missing(path)
        return value

    def _child(self, value: Any, part: str, path: list[str]) -> Any:
        if isinstance(value, dict) and part in value:
            return value[part]
        if isinstance(value, list):
            return value[self._index(value, part, path, len(value) - 1)]
        raise self._missing(path)

    def _get(self, path: list[str]) -> Any:
        return self._child(self._parent(path), path[-1], path) if path else self.root

    @staticmethod
    def _missing(path: list[str]) -> StatusError:
        return status.unfit_patch(f'doc is missing path: "/{"/".join(path)}": missing value')

    @staticmethod
    def _index(values: list[Any], part: str, path: list[str], last: int) -> int:
        if not part.isascii() or not part.isdigit() or (part[0] == "0" and part != "0") or len(part) > 9:
            raise status.unfit_patch(f'"{part}" is no index of a list')
        if int(part) > last:
            where = "/".join(path)
            raise status.unfit_patch(f'Unable to access invalid index: {part}: invalid index referenced in "/{where}"')
        return int(part)

    def _add(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent = self._parent(path)
        if isinstance(parent, dict):
            parent[path[-1]] = value
        elif path[-1] == "-":
            parent.append(value)
        else:
            parent.insert(self._index(parent, path[-1], path, len(parent)), value)

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent = self._parent(path)
        self._child(parent, path[-1], path)
        if isinstance(parent, dict):
            parent[path[-1]] = value
        else:
            parent[int(path[-1])] = value

    def _remove(self, path: list[str]) -> Any:
        if not path:
            raise status.unfit_patch("Unable to remove the whole document")
        parent = self._parent(path)
        value = self._child(parent, path[-1], path)
        if isinstance(parent, dict):
            del parent[path[-1]]
        else:
            del parent[int(path[-1])]
        return value

    def _move(self, source: list[str], path: list[str]) -> None:
        if path[: len(source)] == source and len(path) > len(source):
            raise status.unfit_patch("a value cannot be moved into itself")
        self._deepest = self._deepest or _measure_depth(self.root)
        self._note_depth(self._deepest + len(path) - len(source))
        self._add(path, self._remove(source))

    def _copy(self, source: list[str], path: list[str]) -> None:
        raw = orjson.dumps(self._get(source))
        self._copied_bytes += len(raw)
        if self._copied_bytes > MAX_COPIED_BYTES:
            text = f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes}"
            raise status.unfit_patch(text)
        value = orjson.loads(raw)
        self._note_depth(len(path) + _measure_depth(value))
        self._add(path, value)

    def _note_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise status.unfit_patch(f"the patched document is nested too deeply: the limit is {MAX_DEPTH}")
        if self._deepest:
            self._deepest = max(self._deepest, depth)

    def _test(self, path: list[str], value: Any) -> None:
        try:
            found = self._get(path)
        except StatusError:
            if value is None:
                return
            raise
        if not _equal(found, value):
            raise status.unfit_patch(f'testing path "/{"/".join(path)}" value failed')


def _equal(a: Any, b: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
