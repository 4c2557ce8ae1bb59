"""The format of admission.k8s.io/v1: an AdmissionReview asks about one request, and its answer says yes or no.

The API server is expected to send reviews, but anybody who reaches the port can, so nothing is taken for granted about
the types of what comes in.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
_EMPTY: Object = {}


@dataclass(frozen=True, slots=True)
class Review:
    uid: str
    operation: str
    gvr: GVR
    namespace: str
    """"" for a cluster-scoped kind."""
    new: Object
    """Empty for a deletion."""
    old: Object | None
    """None for a creation."""

    @property
    def name(self) -> str:
        """The API server has generated it by the time of validation, but not yet when defaults are filled in."""
        return str((self.new or self.old or _EMPTY)["metadata"].get("name", ""))


@dataclass(slots=True)
class ReviewVerdict:
    """The result of a review."""

    error: StatusError | None = None
    warnings: list[str] = field(default_factory=list)
    patch: list[Object] = field(default_factory=list)
    """RFC 6902."""


def parse(body: bytes) -> Review:
    """Raises StatusError 400."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"the body is not JSON: {error}") from None
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or review.get("kind") != KIND or review.get("apiVersion") != API_VERSION:
        raise status.bad_request(f"the body is not an {KIND} of {API_VERSION} with a request")
    uid, operation, namespace = (_take_text(request, name) for name in ("uid", "operation", "namespace"))
    resource = _take_object(request, "resource")
    gvr = GVR(*(_take_text(resource, name) for name in ("group", "version", "resource")))
    new = {} if operation == DELETE else _take_object(request, "object")
    old = None if operation == CREATE else _take_object(request, "oldObject")
    for name, obj in (("object", new), ("oldObject", old)):
        if obj and not isinstance(obj.get("metadata"), dict):
            raise status.bad_request(f"request.{name}.metadata is not an object")
    if not uid or operation not in (CREATE, UPDATE, DELETE):
        raise status.bad_request("request.uid and request.operation (CREATE, UPDATE or DELETE) are required")
    return Review(uid, operation, gvr, namespace, new, old)


def _take_text(fields: Object, name: str) -> str:
    found = fields.get(name, "")
    if not isinstance(found, str):
        raise status.bad_request(f"request.{name} is not a string")
    return found


def _take_object(fields: Object, name: str) -> Object:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise status.bad_request(f"request.{name} is not an object")
    return found


def build_answer(review: Review, verdict: ReviewVerdict) -> Object:
    response: Object = {"uid": review.uid, "allowed": verdict.error is None}
    if verdict.error is not None:
        response["status"] = verdict.error.to_object()
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(verdict.patch)).decode()
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def list_changes(old: Any, new: Any, path: str = "") -> Iterator[Object]:
    """The operations that turn `old` into `new`, for objects in which values are added or replaced."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name in old:
                yield from list_changes(old[name], value, place)
            else:
                yield {"op": "add", "path": place, "value": value}
    elif _are_lists(old, new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from list_changes(before, after, f"{path}/{index}")
    else:
        yield {"op": "replace", "path": path, "value": new}


def _are_lists(old: Any, new: Any) -> bool:
    return isinstance(old, Sequence) and isinstance(new, list) and len(old) == len(new) and not isinstance(old, str)
