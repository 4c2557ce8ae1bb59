"""values.schema.json, from the dataclasses in `values`: with it Helm refuses what `reading` refuses. Pure."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Literal, cast

from trainmaster.api.meta import Fields, Object
from trainmaster.app.operator_options import OperatorOptions
from trainmaster.operator.install.values import ValueRule, Values

OWNED = {
    "namespaces": "watchNamespaces",
    "instance": "instance",
    "companion": "companion",
    "history": "history.enabled",
    "v1_jobs": "v1Jobs",
    "gang_scheduler_name": "gangSchedulerName",
    "progress": "progress.enabled",
    "webhooks": "webhook.enabled",
    "webhook_cert_dir": "webhook.certManager.enabled",
    "metrics_secure": "metrics.secure",
}
"""Settings of the group `operator` that follow from values."""
FIXED = (
    "lease_namespace",
    "webhook_url",
    "progress_port",
    "webhook_port",
    "health_port",
    "health_address",
    "metrics_port",
    "metrics_address",
    "records_port",
    "records_address",
)
"""Settings on which the Service, the probes and the policies rely."""
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def build_schema() -> Object:
    schema = _build_group(Values)
    # What Helm adds to the values of a chart that is part of another one.
    schema["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of Trainmaster", **schema}


def to_key(name: str) -> str:
    """v1_jobs -> v1Jobs"""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _build_group(group: type) -> Object:
    hints = typing.get_type_hints(group, include_extras=True)
    properties = {to_key(item.name): _build(hints[item.name]) for item in dataclasses.fields(group)}
    required = [key for key, schema in properties.items() if not allows_null(schema)]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def allows_null(schema: Fields) -> bool:
    return isinstance(schema.get("type"), list)


def _build(hint: object) -> Object:
    rule = ValueRule()
    if typing.get_origin(hint) is typing.Annotated:
        hint, rule = typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build_group(hint)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    if origin is tuple:
        return _build_list(typing.get_args(hint)[0], rule)
    if origin is not None and issubclass(origin, Mapping):
        return _build_mapping(typing.get_args(hint)[1], rule)
    return _build_scalar(hint, rule)


def _build_scalar(hint: object, rule: ValueRule) -> Object:
    schema: Object = {"type": "string"}
    if isinstance(hint, types.UnionType):
        schema = {"type": [_NAMES[typing.get_args(hint)[0]], "null"]}
    else:
        schema = {"type": _NAMES[cast(type, hint)]}
    bounds = {"minimum": rule.minimum, "maximum": rule.maximum}
    schema |= {key: bound for key, bound in bounds.items() if bound is not None}
    return schema | _describe_pattern(rule)


def _describe_pattern(rule: ValueRule) -> Object:
    return {"pattern": rule.pattern, "description": rule.meaning} if rule.pattern else {}


def _build_list(element: object, rule: ValueRule) -> Object:
    schema: Object = {"type": "array", "items": {"type": "object"}}
    if element is str:
        items = {"enum": list(rule.words)} if rule.words else _describe_pattern(rule)
        schema |= {"items": {"type": "string", **items}, "uniqueItems": True}
    return {**schema, "minItems": rule.least} if rule.least else schema


def _build_mapping(element: object, rule: ValueRule) -> Object:
    if rule.group:
        return _build_settings()
    schema: Object = {"type": "object"}
    if element is str:
        schema["additionalProperties"] = {"type": "string"}
    if rule.reserved:
        schema["propertyNames"] = {"not": {"enum": list(rule.reserved)}}
    return schema


def _build_settings() -> Object:
    hints = typing.get_type_hints(OperatorOptions)
    free = {name: hint for name, hint in hints.items() if name not in OWNED and name not in FIXED}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": _NAMES[hint]} for name, hint in free.items()},
    }
