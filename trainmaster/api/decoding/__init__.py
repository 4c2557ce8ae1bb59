"""From a parsed request body to an object of a kind: types checked, unknown fields dropped, schema defaults filled in.

All JSON of clients goes through `decode`. It changes the given object in place and is idempotent. Compiled checks
(`checks`) accept an object that needs no changes in a few microseconds; otherwise a slower pass repairs the object and
collects errors (`walk`).

As upstream, built-in and custom kinds differ: a wrong type in a built-in kind is a 400 with Go's message at decoding;
in a custom kind it is a 422 at validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import checks, walk
from trainmaster.api.meta import Object


class FieldValidation(Enum):
    """The `fieldValidation` parameter of a write; Warn is what an absent parameter means."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


class Decoded(NamedTuple):
    object: Object
    warnings: tuple[str, ...] = ()
    """One text per dropped field, for `Warning` headers; empty unless the mode is Warn."""


def decode(
    kind: Kind, obj: Object, mode: FieldValidation = FieldValidation.WARN, duplicates: Sequence[str] = ()
) -> Decoded:
    """Checks types, drops unknown fields and fills in schema defaults. Raises StatusError, usually 400.

    `duplicates`: paths of duplicate fields in the client's text, which the parsed object no longer shows.
    """
    _check_type(kind, obj)
    check = _compiled.get(kind.definition) or _compile(kind)
    if check(obj) and not duplicates:
        return Decoded(obj)
    try:
        unknown = walk.repair(kind, obj)
    except walk.DecodeError as error:
        raise status.bad_request(f"{handled_as(kind)}: {error}") from None
    texts = (
        *(f'duplicate field "{_shorten(path)}"' for path in duplicates[:_MOST_TEXTS]),
        *(f'unknown field "{_shorten(path)}"' for path in unknown[:_MOST_TEXTS]),
    )
    if not texts or mode is FieldValidation.IGNORE:
        return Decoded(obj)
    if mode is FieldValidation.STRICT:
        raise status.bad_request(f"{handled_as(kind)}: strict decoding error: {', '.join(texts)}")
    return Decoded(obj, texts)


_MOST_TEXTS = 100
_LONGEST_PATH = 1024


def _shorten(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."


def is_clean(kind: Kind, obj: Object, field: str) -> bool:
    """Whether decoding would leave this field as it is. Schema defaults of custom kinds are filled in."""
    check = _compiled_fields.get((kind, field)) or _compile_field(kind, field)
    return field in obj and check(obj[field])


def handled_as(kind: Kind) -> str:
    """The prefix of upstream's messages about a body that cannot be decoded."""
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


_compiled: dict[str, checks.Check] = {}
"""By definition, which is one kind each."""


_compiled_fields: dict[tuple[Kind, str], checks.Check] = {}


def _compile_field(kind: Kind, field: str) -> checks.Check:
    node = kind.load().properties.get(field)
    check = checks.never if node is None else checks.as_function(checks.compile_node(node, kind.custom))
    _compiled_fields[kind, field] = check
    return check


def _compile(kind: Kind) -> checks.Check:
    check = _compiled[kind.definition] = checks.compile_kind(kind.load(), kind.custom)
    return check


def _check_type(kind: Kind, obj: Object) -> None:
    """Checks that apiVersion and kind match the collection of the request; built-in kinds may omit them."""
    version, name = obj.get("apiVersion"), obj.get("kind")
    if version == kind.api_version and name == kind.kind:
        return
    if kind.custom:
        if not name:
            text = f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing"
            raise status.bad_request(text)
        if version != kind.api_version:
            text = f"the API version in the data ({version or ''}) does not match the expected API version"
            raise status.bad_request(f"{text} ({kind.api_version})")
        raise _wrong_custom_kind(kind, str(name), obj)
    if (version and version != kind.api_version) or (name and name != kind.kind):
        named, short = name or kind.kind, str(version or kind.api_version).rpartition("/")[2]
        text = f'no kind "{named}" is registered for version "{version or kind.api_version}" in scheme'
        text = f'{named} in version "{short}" cannot be handled as a {kind.kind}: {text} "pkg/runtime/scheme.go:111"'
        raise status.bad_request(text)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind


def _wrong_custom_kind(kind: Kind, name: str, obj: Object) -> status.StatusError:
    metadata = obj.get("metadata")
    object_name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    return status.invalid(kind.group, name, object_name, [fields.invalid("kind", name, f"must be {kind.kind}")])
