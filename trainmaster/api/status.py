"""The Kubernetes Status error, used by server and clients alike.

    StatusError
    ├── NotFound         404 NotFound
    ├── AlreadyExists    409 AlreadyExists
    ├── Conflict         409 Conflict
    ├── Invalid          422 Invalid
    └── Expired          410 Expired

Subclasses exist only for what someone catches. Every other refusal is a plain `StatusError` made by one of the
constructors below, one per reason. Message texts follow upstream because clients match on them. Exactly one place
turns a StatusError into a response (`apiserver`), and one turns a response into a StatusError (`client.http`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Object


class StatusError(Exception):
    """An API refusal. `to_object` is the wire form, `from_object` its inverse."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    @property
    def retry_after(self) -> int | None:
        value = self.details.get("retryAfterSeconds")
        return value if isinstance(value, int) else None

    @property
    def causes(self) -> Sequence[Mapping[str, str]]:
        causes = self.details.get("causes", [])
        return causes if isinstance(causes, list) else []

    def to_object(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


class NotFound(StatusError):
    """The object, or the path, does not exist."""


class AlreadyExists(StatusError):
    """An object of that name exists."""


class Conflict(StatusError):
    """The object changed since it was read, a precondition failed, or another manager owns a field."""


class Invalid(StatusError):
    """The object is well formed and breaks a rule; causes name the fields."""


class Expired(StatusError):
    """The asked-for revision, or the continue token, is older than what is kept. List again."""


_CLASSES: Mapping[str, type[StatusError]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Invalid": Invalid,
    "Expired": Expired,
    "Gone": Expired,
}


def from_object(status: Mapping[str, Any], *, code: int = 500) -> StatusError:
    """The error that a Status object received from a server stands for."""
    reason = str(status.get("reason") or "")
    details = status.get("details")
    cls = _CLASSES.get(reason, StatusError)
    return cls(
        int(status.get("code") or code),
        reason,
        str(status.get("message") or ""),
        details=details if isinstance(details, Mapping) else None,
    )


def _details(gvr: GVR, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if gvr.group:
        details["group"] = gvr.group
    details["kind"] = gvr.plural
    details.update(more)
    return details


def not_found(gvr: GVR, name: str) -> NotFound:
    return NotFound(404, "NotFound", f'{gvr.qualified} "{name}" not found', details=_details(gvr, name))


def unknown_path() -> NotFound:
    return NotFound(404, "NotFound", "the server could not find the requested resource")


def already_exists(gvr: GVR, name: str) -> AlreadyExists:
    return AlreadyExists(409, "AlreadyExists", f'{gvr.qualified} "{name}" already exists', details=_details(gvr, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(gvr: GVR, name: str, message: str = MODIFIED) -> Conflict:
    text = f'Operation cannot be fulfilled on {gvr.qualified} "{name}": {message}'
    return Conflict(409, "Conflict", text, details=_details(gvr, name))


def apply_conflict(message: str, causes: Iterable[Mapping[str, str]]) -> Conflict:
    """A server-side apply that meets fields of other managers."""
    return Conflict(409, "Conflict", message, details={"causes": [dict(cause) for cause in causes]})


def unfit_patch(text: str) -> Invalid:
    """The patch is well formed and does not fit the object. kubectl prints field and message of the cause."""
    message = "the server rejected our request due to an error in our request"
    cause = {"reason": "UnexpectedServerResponse", "message": text, "field": "patch"}
    return Invalid(422, "Invalid", message, details={"causes": [cause]})


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Invalid:
    """422 with one cause per field error; upstream joins several with brackets, and says the same thing once."""
    errors = _take_first(errors)
    texts = list(dict.fromkeys(str(error) for error in errors))
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    named = {"name": name, "group": group, "kind": kind}
    details: dict[str, Any] = {field: value for field, value in named.items() if value}
    details["causes"] = [error.to_cause() for error in errors]
    return Invalid(422, "Invalid", f'{qualified} "{name}" is invalid: {joined}', details=details)


_MOST_ERRORS = 100
_MOST_TEXT = 256 * 1024


def _take_first(errors: Sequence[FieldError]) -> Sequence[FieldError]:
    """As many as a person reads: a small body can break a rule a hundred thousand times, with a long value each."""
    if len(errors) < 2:
        return errors
    taken: list[FieldError] = []
    room = _MOST_TEXT
    for error in errors:
        room -= len(str(error))
        if taken and (room < 0 or len(taken) == _MOST_ERRORS):
            rest = f"{len(errors) - len(taken)} further errors are not shown"
            return [*taken, FieldError(fields.ROOT, fields.FieldErrorKind.TOO_MANY, fields.OMIT, rest)]
        taken.append(error)
    return taken


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(gvr: GVR, name: str, message: str, *, causes: Iterable[Mapping[str, str]] = ()) -> StatusError:
    named = f'{gvr.qualified} "{name}"' if name else gvr.qualified
    details = _details(gvr, name)
    causes = [dict(cause) for cause in causes]
    if causes:
        details["causes"] = causes
    return StatusError(403, "Forbidden", f"{named} is forbidden: {message}", details=details)


def forbidden_path(user: str, verb: str, path: str) -> StatusError:
    return StatusError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"')


def method_not_allowed(reason: str = "") -> StatusError:
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", f"{text}: {reason}" if reason else text)


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    text = "only the following media types are accepted: " + ", ".join(accepted)
    return StatusError(406, "NotAcceptable", text)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", text)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_old(asked: int, oldest: int) -> Expired:
    return Expired(410, "Expired", f"too old resource version: {asked} ({oldest})")


def continue_expired() -> Expired:
    text = "The provided continue parameter is too old to display a consistent list result."
    return Expired(410, "Expired", text + " You must start a new list without the continue parameter.")


def too_many_requests(message: str, retry_after: int = 1) -> StatusError:
    return StatusError(429, "TooManyRequests", message, retry_after=retry_after)


def internal_error(request_id: str) -> StatusError:
    text = f"Internal error occurred: see the server's log for request {request_id}"
    causes = [{"message": f"request {request_id}"}]
    return StatusError(500, "InternalError", text, details={"causes": causes})


def unavailable(message: str, retry_after: int = 1) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, retry_after=retry_after)


def insufficient_storage(message: str, retry_after: int = 5) -> StatusError:
    """The machine has no disk left; nothing that the caller did wrong."""
    return StatusError(507, "InsufficientStorage", message, retry_after=retry_after)


def timeout(message: str) -> StatusError:
    return StatusError(504, "Timeout", message)
