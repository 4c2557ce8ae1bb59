"""Which requests the records port answers: discovery, `list` and `get` of records, and `log` of one. Pure.

All are below /apis/records.trainmaster.dev/v1alpha1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from trainmaster.api import status
from trainmaster.api.resources import JOB_RECORDS
from trainmaster.apiserver.http.messages import EMPTY_QUERY, Query

_GROUP = f"/apis/{JOB_RECORDS.group}"
VERSION_PATH = f"{_GROUP}/{JOB_RECORDS.version}"


class RecordAction(Enum):
    DISCOVER = "discover"
    LIST = "list"
    GET = "get"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class RecordRoute:
    action: RecordAction
    namespace: str = ""
    """ "" is all."""
    name: str = ""
    query: Query = EMPTY_QUERY


def parse_route(method: str, target: str) -> RecordRoute:
    """Raises StatusError: 400, 404, 405."""
    path, _, text = target.partition("?")
    action, namespace, name = _parse_path(path.rstrip("/"))
    if method != "GET":
        raise status.method_not_allowed("records are written by the operator alone")
    query = Query(text)
    if query.flag("watch"):
        raise status.method_not_allowed("records cannot be watched")
    return RecordRoute(action, namespace, name, query)


def _parse_path(path: str) -> tuple[RecordAction, str, str]:
    """With namespace and name."""
    if path in ("/apis", _GROUP, VERSION_PATH):
        return RecordAction.DISCOVER, "", ""
    head, found, rest = path.partition(f"{VERSION_PATH}/")
    parts = [unquote(part) for part in rest.split("/")] if found and not head else []
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    match parts:
        case [JOB_RECORDS.plural]:
            return RecordAction.LIST, namespace, ""
        case [JOB_RECORDS.plural, name] if namespace and name:
            return RecordAction.GET, namespace, name
        case [JOB_RECORDS.plural, name, "log"] if namespace and name:
            return RecordAction.LOG, namespace, name
    raise status.unknown_path()
