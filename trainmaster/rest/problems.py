"""Errors as RFC 9457 problem documents, with the fields that are wrong and what to do about it.

    {"type": "urn:trainmaster:problem:invalid", "title": "...", "status": 422, "detail": "...", "hint": "...",
     "errors": [{"pointer": "/config/num_nodes", "detail": "..."}], "request_id": "..."}

Services raise `Problem`, or let the server's `StatusError` through; the edge turns both into a response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.status import StatusError
from trainmaster.jobs.kinds import get_kind_name
from trainmaster.jobs.lookups import AmbiguousName

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:trainmaster:problem:"
_TITLES = {
    400: "The request cannot be read",
    401: "Nobody is known by this token",
    403: "You may not do this",
    404: "There is no such thing",
    405: "The path does not have this method",
    408: "The request took too long",
    409: "It cannot be done now",
    413: "The request is too large",
    415: "The body is in another format",
    421: "The request is for another server",
    422: "The request breaks a rule",
    429: "Too many requests",
    500: "We failed",
    502: "The server behind failed",
    503: "The server behind does not answer",
    504: "The server behind took too long",
    507: "The disk of the server is full",
}
_NOT_COUNTED = "status unknown for quota"
"""A cluster's message for a new quota whose usage is not known yet."""
_HINTS = {
    401: "send `Authorization: Bearer TOKEN` with a token that has not expired and was not revoked",
    403: "ask an administrator for a role in this namespace, or name your own namespace",
    429: "wait for as long as Retry-After says, then send it again",
    500: "tell the administrator the request_id: the server's log explains it",
    502: "send it again in a moment; if it stays, ask the cluster's administrator",
    503: "send it again in a moment",
    504: "send it again in a moment",
    507: "wait until there is room: delete what you do not need, or ask the administrator",
}

_SEND_JSON = "send a JSON object in UTF-8"
_SHOWN_NUMBERS = 10**18


@dataclass(frozen=True, slots=True)
class FieldProblem:
    detail: str
    pointer: str = ""
    """JSON pointer into the body."""
    parameter: str = ""
    """Name in the path or the query."""

    def to_data(self) -> dict[str, str]:
        where = {"pointer": self.pointer} if self.pointer else {"parameter": self.parameter} if self.parameter else {}
        return {**where, "detail": self.detail}


class Problem(Exception):
    """A refusal of our own. `kind` is the last word of its type."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        hint: str = "",
        errors: Sequence[FieldProblem] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.hint = hint or _HINTS.get(status, "")
        self.errors = tuple(errors)
        self.retry_after = retry_after

    def to_data(self, request_id: str = "") -> Object:
        data: Object = {
            "type": _PREFIX + self.kind,
            "title": _TITLES.get(self.status, "The request was refused"),
            "status": self.status,
            "detail": self.detail,
        }
        if self.hint:
            data["hint"] = self.hint
        if self.errors:
            data["errors"] = [error.to_data() for error in self.errors]
        if request_id:
            data["request_id"] = request_id
        return data

    def to_headers(self) -> dict[str, str]:
        headers = {"content-type": MEDIA_TYPE}
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="trainmaster"'
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers

    def to_body(self, request_id: str = "") -> bytes:
        return orjson.dumps(self.to_data(request_id))


def invalid(errors: Sequence[FieldProblem], *, hint: str = "") -> Problem:
    """422: which fields are wrong, and why."""
    detail = "; ".join(
        f"{error.pointer or error.parameter}: {error.detail}" if error.pointer or error.parameter else error.detail
        for error in errors
    )
    return Problem(422, "invalid", detail, hint=hint, errors=errors)


def not_found(detail: str, *, hint: str = "") -> Problem:
    return Problem(404, "not-found", detail, hint=hint)


def build_unexpected(request_id: str) -> Problem:
    return Problem(500, "internal", f"an error that nobody expected: request {request_id}")


def from_status(error: StatusError) -> Problem:
    """A refusal of the API server, with its message."""
    if isinstance(error, AmbiguousName):
        hint = f"send {' or '.join(f'kind={get_kind_name(type(job))}' for job in error.jobs)}"
        return Problem(409, "ambiguous", f"jobs of several kinds are named {error.jobs[0].name!r}", hint=hint)
    if error.code == 403 and _NOT_COUNTED in error.message:
        hint = "send it again in a moment; where Trainer was installed just now, this can take five minutes"
        return Problem(503, "quota-not-counted", error.message, hint=hint, retry_after=1)
    code = error.code if 400 <= error.code < 600 else 502
    # The API server's failure, not ours: our log would not explain it.
    code = 502 if code == 500 else code
    kind = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in error.reason).lstrip("-")
    errors = [
        FieldProblem(f"{cause['field']}: {cause.get('message', '')}") for cause in error.causes if cause.get("field")
    ]
    return Problem(code, kind or "refused", error.message, errors=errors, retry_after=error.retry_after)


def to_pointer(parts: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def from_validation(errors: Sequence[Fields], content_type: str = "application/json") -> Problem:
    """Errors that the framework found while decoding: all fields at once, in our words."""
    found, hint = [], ""
    for error in errors:
        where, *rest = error.get("loc") or ("body",)
        kind = str(error.get("type", ""))
        if kind == "json_invalid":
            reason = error.get("ctx", {}).get("error", "")
            return Problem(400, "bad-request", f"the body is not JSON: {reason}", hint=_SEND_JSON)
        if where == "body" and not rest:
            return _refuse_body(kind, content_type)
        text = _describe(kind, error)
        hint = hint or ("/docs lists the fields of each request" if kind == "extra_forbidden" else "")
        if where == "body":
            found.append(FieldProblem(text, pointer=to_pointer(rest)))
        else:
            found.append(FieldProblem(text, parameter=str(rest[0]) if rest else str(where)))
    return invalid(found, hint=hint)


def _refuse_body(kind: str, content_type: str) -> Problem:
    """For the body as a whole. curl -d without a header sends a form, and the framework then reads no JSON."""
    media = content_type.partition(";")[0].strip().lower()
    if kind == "missing":
        return Problem(422, "invalid", "the request has no body", hint=_SEND_JSON)
    if media != "application/json" and not media.endswith("+json"):
        detail = f"the body is sent as {media[:64]!r}" if media else "the request does not say what its body is"
        return Problem(415, "unsupported-media-type", detail, hint="send the header `Content-Type: application/json`")
    return Problem(422, "invalid", "the body is no JSON object", hint=_SEND_JSON)


def _describe(kind: str, error: Fields) -> str:
    limits = error.get("ctx", {})
    sent = error.get("input")
    shown = ""
    # Larger numbers cannot be formatted, and longer texts are not helpful.
    if isinstance(sent, str | float) or (isinstance(sent, int) and abs(sent) < _SHOWN_NUMBERS):
        shown = f", not {sent[:40]!r}" if isinstance(sent, str) else f", not {sent}"
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "there is no such field here"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number{shown}"
        case "greater_than_equal":
            return f"must be at least {limits.get('ge')}{shown}"
        case "less_than_equal":
            return f"must be at most {limits.get('le')}{shown}"
    return str(error.get("msg", "")).removeprefix("Value error, ")
