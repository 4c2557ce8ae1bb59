"""Steps of every write, called by the verbs: options, decoding, validation, field ownership.

The rules themselves are in `api` (decoding, validation, patches); this module turns their results into API errors.
"""

from __future__ import annotations

import orjson

from trainmaster.api import fields, status, validation
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import FieldValidation
from trainmaster.api.decoding import decode as decode_object
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.patches import apply as server_side_apply
from trainmaster.api.patches import managed_fields, merge
from trainmaster.api.patches.managed_fields import Writer
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import metadata
from trainmaster.client.contract import PatchType, WriteOptions

_VALIDATION = {
    "": FieldValidation.WARN,
    "Ignore": FieldValidation.IGNORE,
    "Strict": FieldValidation.STRICT,
    "Warn": FieldValidation.WARN,
}
_LONGEST_MANAGER = 128


def check_options(options_kind: str, options: WriteOptions) -> None:
    errors = []
    manager = options.field_manager
    if manager:
        if len(manager) > _LONGEST_MANAGER:
            detail = f"may not be more than {_LONGEST_MANAGER} bytes"
            errors.append(FieldError("fieldManager", fields.FieldErrorKind.TOO_LONG, None, detail))
        elif not manager.isprintable():
            errors.append(fields.invalid("fieldManager", manager, "should only contain printable characters"))
    if options.field_validation not in _VALIDATION:
        errors.append(fields.not_supported("fieldValidation", options.field_validation, sorted(_VALIDATION)))
    if errors:
        raise metadata.options_invalid(options_kind, errors)


def decode(call: Call, kind: Kind, obj: Object, options: WriteOptions) -> None:
    """Checks types, drops unknown fields and fills in schema defaults, in place."""
    if not isinstance(obj, dict):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind; json parse "
            "error: the body is not an object"
        )
    decoded = decode_object(kind, obj, _VALIDATION[options.field_validation], call.duplicates)
    call.warnings.extend(decoded.warnings)
    obj["apiVersion"] = kind.api_version
    obj["kind"] = kind.kind
    if not obj.get("metadata"):
        obj["metadata"] = {}


def check_resource_version_unset(obj: Object) -> None:
    if obj["metadata"].pop("resourceVersion", "") not in ("", "0"):
        raise status.bad_request("resourceVersion should not be set on objects to be created")


def default(kind: Kind, obj: Object) -> None:
    kind.default(obj)


def validate(
    kind: Kind,
    new: Object,
    old: Object | None,
    *,
    subresource: str = "",
    errors: list[FieldError] | None = None,
) -> None:
    """Raises Invalid with all errors."""
    found = list(errors or ())
    found += validation.validate(kind, new, old, subresource=subresource)
    if found:
        raise metadata.invalid(kind, new, found)


def track(
    state: RegistryState,
    call: Call,
    kind: Kind,
    old: Object | None,
    new: Object,
    options: WriteOptions,
    *,
    subresource: str = "",
) -> None:
    """Updates metadata.managedFields, unless the caller is one of our own controllers."""
    meta = new["metadata"]
    if not call.is_own:
        manager = options.field_manager or call.user_agent.partition("/")[0]
        writer = Writer(manager, kind.api_version, state.now(), subresource)
        entries = managed_fields.track_update(kind, old, new, writer)
    else:
        entries = managed_fields.list_entries(old)
    if entries:
        meta["managedFields"] = entries
    else:
        meta.pop("managedFields", None)


def patched(kind: Kind, old: Object, patch_type: PatchType, body: object) -> Object:
    match patch_type:
        case PatchType.JSON:
            from trainmaster.api.patches import json_patch  # noqa: PLC0415 - controllers and the node use merge patches

            return json_patch.apply(old, body)
        case PatchType.MERGE:
            return merge.apply(old, body)
        case PatchType.STRATEGIC:
            from trainmaster.api.patches import strategic  # noqa: PLC0415 - see above

            return strategic.apply(old, body, kind)
        case PatchType.APPLY:
            raise ValueError("server-side apply is not a function of object and patch alone")


def decode_applied(call: Call, kind: Kind, body: Object, options: WriteOptions) -> Object:
    """A configuration for server-side apply: decoded like an object, but without defaults."""
    decoded: Object = orjson.loads(orjson.dumps(body))
    decode(call, kind, decoded, options)
    if not kind.custom:
        return decoded
    wanted = _restrict_fields(decoded, body)
    wanted.setdefault("metadata", {})
    return wanted


def _restrict_fields(decoded: Object, given: Object) -> Object:
    """The decoded object, restricted to the given fields."""
    return {name: _restrict(decoded[name], value) for name, value in given.items() if name in decoded}


def _restrict(decoded: object, given: object) -> object:
    if isinstance(decoded, dict) and isinstance(given, dict):
        return _restrict_fields(decoded, given)
    if isinstance(decoded, list) and isinstance(given, list) and len(decoded) == len(given):
        return [_restrict(one, other) for one, other in zip(decoded, given, strict=True)]
    return decoded


def apply(
    state: RegistryState, kind: Kind, old: Object | None, wanted: Object, options: WriteOptions, subresource: str
) -> Object:
    """The object after server-side apply, sharing nothing with `old`."""
    writer = Writer(options.field_manager, kind.api_version, state.now(), subresource)
    merged = server_side_apply.apply(kind, old, wanted, writer, options.force)
    raw = orjson.dumps(merged)
    state.limits.check_stored(merged, raw, None if old is None else orjson.dumps(old))
    new: Object = orjson.loads(raw)
    decode_object(kind, new, FieldValidation.IGNORE)
    return new
