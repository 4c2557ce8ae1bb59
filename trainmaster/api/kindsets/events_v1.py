"""Event (events.k8s.io): the newer version of the core Event, on the same stored objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Column, Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.kindsets.core_v1 import events
from trainmaster.api.meta import GVR, Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_CORE = "v1"
_OWN = "events.k8s.io/v1"
_SPELLINGS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""Field to the core field of another name."""
_FROM_CORE = {core: own for own, core in _SPELLINGS.items()}
_LONGEST_NOTE = 1024


def to_core(event: Object) -> Object:
    if event.get("apiVersion") == _CORE:
        return event
    return {_SPELLINGS.get(name, name): value for name, value in event.items()} | {"apiVersion": _CORE}


def from_core(event: Object) -> Object:
    if event.get("apiVersion") == _OWN:
        return event
    return {_FROM_CORE.get(name, name): value for name, value in event.items()} | {"apiVersion": _OWN}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors = events.validate(to_core(new), None)
    if old is not None:
        return errors
    if not new.get("eventTime"):
        # Without eventTime it is an old-style event, of which only the type is checked.
        errors.append(fields.required("eventTime"))
        return errors + _check_type(new)
    controller = new.get("reportingController", "")
    if not controller:
        errors.append(fields.required("reportingController"))
    errors += [fields.invalid("reportingController", controller, text) for text in names.qualified(controller)]
    errors += [fields.required(name) for name in ("reportingInstance", "action", "reason") if not new.get(name)]
    if len(new.get("note", "")) > _LONGEST_NOTE:
        errors.append(fields.invalid("message", "", f"can have at most {_LONGEST_NOTE} characters"))
    return errors + _check_type(new)


def _check_type(event: Object) -> list[FieldError]:
    kind = event.get("type", "")
    return [] if kind in ("Normal", "Warning") else [fields.invalid("type", "", f"has invalid value: {kind}")]


def _cell(column: Column, event: Object, now: float) -> Any:
    return column.cell(to_core(event), now)


def _columns() -> tuple[Column, ...]:
    return tuple(Column(c.name, partial(_cell, c), c.type, c.format, c.priority, c.description) for c in events.COLUMNS)


def _select(name: str, event: Object) -> str:
    return events.SELECTABLE[name](to_core(event))


_SELECTABLE = {
    name.replace("involvedObject.", "regarding.").replace("reportingComponent", "reportingController"): partial(
        _select, name
    )
    for name in events.SELECTABLE
}


EVENT = Kind(
    group="events.k8s.io",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    definition="io.k8s.api.events.v1.Event",
    load=partial(load, "io.k8s.api.events.v1.Event"),
    name_form="any",
    short_names=("ev",),
    columns=_columns(),
    validate=validate,
    selectable=_SELECTABLE,
    generation=False,
    storage=GVR("", "v1", "events"),
    to_storage=to_core,
    from_storage=from_core,
    roles={"view": {"": READ}, "tenant": {"": READ}},
    fidelity={
        **OBJECT,
        **dict.fromkeys(("action", "deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"), H),
        **dict.fromkeys(("deprecatedSource", "eventTime", "note", "reason", "regarding", "related"), H),
        **dict.fromkeys(("reportingController", "reportingInstance", "series", "type"), H),
    },
)

KINDS = (EVENT,)
