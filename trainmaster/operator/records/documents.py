"""The answers of the records port about itself, and lists as kubectl shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from trainmaster.api import status
from trainmaster.api.declaring import discovery
from trainmaster.api.declaring.kinds import Catalogue, Column, Kind, Subresource
from trainmaster.api.declaring.tables import NAME, build_partial, build_partial_list, build_table, render_age
from trainmaster.api.formats.selectors import parse_fields
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOB_RECORDS
from trainmaster.apiserver.http.messages import Query
from trainmaster.apiserver.http.negotiate import Form, choose_form, find_discovery_version
from trainmaster.history import objects


def _load() -> NoReturn:
    raise AssertionError("records are never written, so nothing validates them")


def _column(title: str, key: str, *, age: bool = False, priority: int = 0, description: str = "") -> Column:
    def read(obj: Object, now: float) -> str:
        text = read_text(obj, "record", key)
        return (render_age(text, now) if age and text else text) or "-"

    return Column(title, read, priority=priority, description=description)


def _read_deletion(obj: Object, key: str) -> str:
    return read_text(obj, "record", "deletion", key)


def _show_deletion(obj: Object, now: float) -> str:
    moment = _read_deletion(obj, "at")
    return render_age(moment, now) if moment else "-"


def _show_deleter(obj: Object, now: float) -> str:
    return _read_deletion(obj, "by") or ("unknown" if _read_deletion(obj, "at") else "-")


RECORD_KIND = Kind(
    JOB_RECORDS.group,
    JOB_RECORDS.version,
    objects.KIND,
    JOB_RECORDS.plural,
    "jobrecord",
    namespaced=True,
    definition="",
    load=_load,
    verbs=("get", "list"),
    subresources=(Subresource("log", ("get",)),),
    columns=(
        NAME,
        _column("Job", "name", description="Name of the job."),
        _column("Kind", "kind", description="Kind of the job."),
        _column("State", "state", description="How it ended: Complete, Failed, or Deleted before its end."),
        _column("Ended", "finished", age=True, description="Time since its end."),
        Column("Deleted", _show_deletion, description="Time since it was deleted."),
        Column("By", _show_deleter, priority=1, description="Who deleted it."),
        _column("Runtime", "runtime", priority=1, description="The runtime of a TrainJob."),
    ),
    selectable={f"record.{key}": lambda obj: "" for key in ("name", "kind", "state")},
)
_CATALOGUE = Catalogue([RECORD_KIND])


def build_discovery(path: str, accept: str) -> tuple[Object, str]:
    """The document and its content type."""
    version = find_discovery_version(accept) if path == "/apis" else ""
    if version:
        parameters = f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return discovery.aggregated(_CATALOGUE, core=False, version=version), f"application/json;{parameters}"
    document = discovery.legacy(_CATALOGUE, path)
    assert document is not None, "the route was found"
    return document, "application/json"


def read_fields_wanted(query: Query) -> dict[str, str]:
    """The values that fields must have. Raises StatusError 400 for what cannot be selected."""
    if query.get("labelSelector"):
        raise status.bad_request("records have no labels: select them with --field-selector record.name=NAME")
    selector = parse_fields(query.get("fieldSelector"), RECORD_KIND)
    found: dict[str, str] = {}
    for term in () if selector is None else selector.terms:
        if not term.equal or found.get(term.field, term.value) != term.value:
            raise status.bad_request("fields of records can only be selected by one value: record.state=Failed")
        found[term.field] = term.value
    return found


def build_list(items: Sequence[Object], token: str, accept: str, query: Query, now: datetime) -> Object:
    metadata: Object = {"resourceVersion": ""} | ({"continue": token} if token else {})
    form = choose_form(accept)
    if form in (Form.TABLE, Form.TABLE_BETA):
        return _build_table(form, items, metadata, query, now)
    if form in (Form.PARTIAL, Form.PARTIAL_LIST):
        return build_partial_list(items, metadata)
    head = {"kind": RECORD_KIND.list_kind, "apiVersion": RECORD_KIND.api_version, "metadata": metadata}
    return {**head, "items": list(items)}


def build_single(item: Object, accept: str, query: Query, now: datetime) -> Object:
    form = choose_form(accept)
    if form in (Form.TABLE, Form.TABLE_BETA):
        return _build_table(form, [item], {"resourceVersion": ""}, query, now)
    return build_partial(item) if form in (Form.PARTIAL, Form.PARTIAL_LIST) else item


def _build_table(form: Form, items: Sequence[Object], metadata: Object, query: Query, now: datetime) -> Object:
    table = build_table(RECORD_KIND, items, now, include=query.get("includeObject"), metadata=metadata)
    return table | ({"apiVersion": "meta.k8s.io/v1beta1"} if form is Form.TABLE_BETA else {})
