"""Event: what happened to an object. Stored objects are served in two versions, core and events.k8s.io."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, WRITE, Column, Kind, UpdateRules
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load


def validate(new: Object, old: Object | None) -> list[FieldError]:
    """An event must be in the namespace of its object, or in `default` for cluster-scoped objects."""
    about = (new.get("involvedObject") or {}).get("namespace", "")
    own = new["metadata"].get("namespace", "")
    if about == own or (not about and own in ("default", "kube-system")):
        return []
    return [fields.invalid("involvedObject.namespace", about, "does not match event.namespace")]


def get_last_seen(event: Object, now: float) -> str:
    series = event.get("series") or {}
    return cells.render_age(series.get("lastObservedTime") or event.get("lastTimestamp") or _first(event), now)


def _first(event: Object) -> str | None:
    first: str | None = event.get("firstTimestamp") or event.get("eventTime")
    return first


def _get_object(event: Object, now: float) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _get_source(event: Object, now: float) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _get_count(event: Object, now: float) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


COLUMNS = (
    Column("Last Seen", get_last_seen, description="Time since it was last observed."),
    Column("Type", lambda event, now: event.get("type", "")),
    Column("Reason", lambda event, now: event.get("reason", "")),
    Column("Object", _get_object),
    Column("Subobject", lambda event, now: (event.get("involvedObject") or {}).get("fieldPath", ""), priority=1),
    Column("Source", _get_source, priority=1),
    Column("Message", lambda event, now: (event.get("message") or "").strip()),
    Column("First Seen", lambda event, now: cells.render_age(_first(event), now), priority=1),
    Column("Count", _get_count, priority=1),
    replace(cells.NAME, priority=1),
)


def _about(name: str, event: Object) -> str:
    return str((event.get("involvedObject") or {}).get(name, ""))


def _source(event: Object) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


SELECTABLE = {
    f"involvedObject.{name}": partial(_about, name)
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {
    "reason": lambda event: str(event.get("reason", "")),
    "reportingComponent": lambda event: str(event.get("reportingComponent", "")),
    "source": _source,
    "type": lambda event: str(event.get("type", "")),
}


EVENT = Kind(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    definition="io.k8s.api.core.v1.Event",
    load=partial(load, "io.k8s.api.core.v1.Event"),
    name_form="any",
    short_names=("ev",),
    columns=COLUMNS,
    validate=validate,
    selectable=SELECTABLE,
    generation=False,
    updates=UpdateRules(creates=True),
    roles={"view": {"": READ}, "edit": {"": WRITE}, "tenant": {"": READ}},
    fidelity={
        **OBJECT,
        **dict.fromkeys(("action", "count", "eventTime", "firstTimestamp", "involvedObject", "lastTimestamp"), H),
        **dict.fromkeys(("message", "reason", "related", "reportingComponent", "reportingInstance", "series"), H),
        **dict.fromkeys(("source", "type"), H),
    },
)
