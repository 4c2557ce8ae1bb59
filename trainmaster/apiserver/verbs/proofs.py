"""Checks what our own controllers guarantee of their writes, and what the verbs therefore do not check again.

Only in tests and in the simulation (`RegistryState.proves`): a write that breaks its guarantee is a bug of the
controller, so it is an AssertionError and not an answer.
"""

from __future__ import annotations

import orjson

from trainmaster.api import validation
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import FieldValidation, decode
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError


def check_new(kind: Kind, obj: Object) -> None:
    """An object as `client.writes.Create.proven` promises it, after defaulting."""
    what = f"{kind.kind} {obj['metadata']['name']}"
    try:
        decoded = decode(kind, orjson.loads(orjson.dumps(obj)), FieldValidation.STRICT).object
    except StatusError as error:
        raise AssertionError(f"{what} was to need no decoding: {error.message}") from error
    if decoded != obj:
        raise AssertionError(f"{what} was to need no decoding, which changes it")
    if errors := validation.validate(kind, obj, None):
        raise AssertionError(f"{what} was to be valid: {errors}")


def check_status(kind: Kind, new: Object, old: Object) -> None:
    if errors := validation.validate(kind, new, old, subresource="status"):
        raise AssertionError(f"the status of {kind.kind} {new['metadata']['name']} was to be valid: {errors}")
