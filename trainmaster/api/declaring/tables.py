"""Objects as `kubectl get` shows them: Table rows and bare metadata, from the columns that a kind declares.

The HTTP layer uses them if the client's Accept header requests it. kubectl prints cells unchanged, so ages are rendered
here; the columns of the kinds also use `render_age` and `render_duration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.meta import Object

TABLE_VERSION = "meta.k8s.io/v1"
UNKNOWN = "<unknown>"

_DAY = 24


def render_duration(seconds: float) -> str:
    """A length of time in at most two units, coarser the longer it is: `5m30s`, `3h`, `7d2h`."""
    total = int(seconds)
    if seconds < 0:
        return "0s" if total > -2 else "<invalid>"
    minutes, hours = total // 60, total // 3600
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 2 * _DAY:
        return f"{hours}h"
    days = hours // _DAY
    if hours < 8 * _DAY:
        return _two(days, "d", hours % _DAY, "h")
    if days < 2 * 365:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def render_age(timestamp: Any, now: float) -> str:
    """The time since an RFC 3339 timestamp; `<unknown>` without one."""
    if not isinstance(timestamp, str) or not timestamp:
        return UNKNOWN
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return UNKNOWN
    return UNKNOWN if then.tzinfo is None else render_duration(now - then.timestamp())


def _name(obj: Object, now: float) -> Any:
    return (obj.get("metadata") or {}).get("name", "")


def _age(obj: Object, now: float) -> Any:
    return render_age((obj.get("metadata") or {}).get("creationTimestamp"), now)


NAME = Column("Name", _name, format="name", description="Name of the object, unique within its namespace and kind.")
AGE = Column("Age", _age, description="Time since the object was created.", json_path=".metadata.creationTimestamp")


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The kind's columns; the name comes first unless the kind places it itself. Without any: name and age."""
    columns = kind.columns or (AGE,)
    return columns if any(column.name == NAME.name for column in columns) else (NAME, *columns)


def build_table(
    kind: Kind, objects: Iterable[Object], now: datetime, *, include: str = "Metadata", metadata: Mapping[str, Any]
) -> Object:
    """A Table. `include` says what each row carries besides its cells: Metadata, Object or None."""
    if include not in ("", "Metadata", "Object", "None"):
        detail = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise status.bad_request(f"Unable to convert to Table as requested: {detail}")
    columns = columns_of(kind)
    seconds = now.timestamp()
    rows = []
    for obj in objects:
        row: Object = {"cells": [column.cell(obj, seconds) for column in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = build_partial(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": TABLE_VERSION,
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": rows,
    }


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def build_partial(obj: Object) -> Object:
    """PartialObjectMetadata: the metadata and nothing else."""
    return {"kind": "PartialObjectMetadata", "apiVersion": TABLE_VERSION, "metadata": obj.get("metadata") or {}}


def build_partial_list(objects: Iterable[Object], metadata: Mapping[str, Any]) -> Object:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": TABLE_VERSION,
        "metadata": dict(metadata),
        "items": [build_partial(obj) for obj in objects],
    }
