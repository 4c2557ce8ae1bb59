"""Label and field selectors applied to stored records, parsing as little as possible.

`metadata.name` and `metadata.namespace` are read from the record's name, labels from the record's memo; only other
fields need the parsed object. A search for the value in the bytes excludes most records before that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import selectors
from trainmaster.apiserver import stored
from trainmaster.store.contract import StoredRecord

# Fields that are plain strings, so that the bytes contain their value unchanged.
_SEARCHABLE = ("involvedObject.", "regarding.", "spec.nodeName")
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9./_:-]+")


@dataclass(slots=True)
class Selection:
    prefix: str
    """The prefix of the names of matching records."""
    name: str
    """Set if a field selector requires one name."""
    labels: selectors.LabelSelector | None
    fields: selectors.FieldSelector | None
    """The field selectors other than name and namespace."""
    needles: tuple[bytes, ...] = ()
    """Bytes that every matching record contains."""

    @property
    def plain(self) -> bool:
        """Whether all records with the prefix match."""
        return self.labels is None and self.fields is None and not self.name

    def matches(self, kind: Kind, record: StoredRecord) -> bool:
        """Whether a record matches. Only for records that match `prefix` and `name`."""
        if self.labels is not None and not self.labels.matches(stored.labels_of(record)):
            return False
        if self.fields is None:
            return True
        value = record.value
        for needle in self.needles:
            if needle not in value:
                return False
        obj = stored.parse(value)
        return self.fields.matches(kind.from_storage(obj) if kind.from_storage else obj)

    def covers(self, record: StoredRecord) -> bool:
        """Whether the record has the selected namespace and name."""
        if not record.name.startswith(self.prefix):
            return False
        return not self.name or stored.split_name(record.name)[1] == self.name


def parse_selection(kind: Kind, namespace: str, labels: str, fields: str) -> Selection:
    """StatusError 400 for malformed selectors and fields that cannot be selected."""
    prefix = f"{namespace}/" if namespace and kind.namespaced else ""
    chosen = selectors.parse_fields(fields, kind)
    name = ""
    if chosen is not None:
        name = _only_value(chosen, "metadata.name")
        if name:
            chosen = chosen.without("metadata.name")
    if chosen is not None and kind.namespaced:
        asked = _only_value(chosen, "metadata.namespace")
        if asked and (not namespace or asked == namespace):
            prefix = f"{asked}/"
            chosen = chosen.without("metadata.namespace")
    return Selection(prefix, name, selectors.parse_labels(labels), chosen, _needles(chosen))


def _only_value(chosen: selectors.FieldSelector, field: str) -> str:
    """The value that all terms about a field require; "" if there is none or they contradict each other."""
    values = {term.value for term in chosen.terms if term.field == field and term.equal}
    return values.pop() if len(values) == 1 else ""


def _needles(chosen: selectors.FieldSelector | None) -> tuple[bytes, ...]:
    if chosen is None:
        return ()
    return tuple(
        term.value.encode()
        for term in chosen.terms
        if term.equal and term.field.startswith(_SEARCHABLE) and _PLAIN_TEXT.fullmatch(term.value)
    )
