"""The terms of a TrainJob as annotations, so that they outlive clients which do not know our fields.

A client in Go that reads a TrainJob into upstream's types and writes it back drops every field that these types lack.
Kueue starts and stops jobs that way. Annotations survive it. So each term in a field is mirrored into its annotation
when the job is written, and a term that vanishes while its annotation stays the same was dropped, not removed: the
field is put back. Whoever wants to remove a term removes field and annotation in one request.

For admission on a cluster, before the object is validated; nobody drops fields on one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_labels

_Place = tuple[str, ...]
_MIRRORED: Mapping[str, tuple[_Place, ...]] = {
    TTL_ANNOTATION: ((TTL_FIELD,), ("cleanupPolicy", TTL_FIELD)),
    DEADLINE_ANNOTATION: ((DEADLINE_FIELD,),),
}
"""Annotation -> the fields of the spec that it mirrors, the first that is set."""
FIELDS = tuple(dict.fromkeys(place[0] for places in _MIRRORED.values() for place in places))
"""The fields of the spec, by which a webhook recognizes jobs that have terms."""


def mirror_terms(new: Object, old: Fields | None) -> list[str]:
    """Completes a TrainJob in place. Returns warnings for its author."""
    warnings: list[str] = []
    if not isinstance(new.get("spec"), dict):
        return warnings
    for annotation, places in _MIRRORED.items():
        if old is not None and _is_dropped(new, old, annotation, places):
            before = old["spec"]
            new["spec"] |= {place[0]: deepcopy(before[place[0]]) for place in places if place[0] in before}
            name = ".".join(_find(before, places)[0])
            warnings.append(
                f"spec.{name} was kept, because clients that do not know the field drop it; to remove it, remove the "
                f"annotation {annotation} in the same request"
            )
        warnings += _mirror(new, old, annotation, places)
    return warnings


def _is_dropped(new: Fields, old: Fields, annotation: str, places: tuple[_Place, ...]) -> bool:
    value = _find(old.get("spec") or {}, places)[1]
    told = _get_annotations(old).get(annotation)
    if value is None or _find(new["spec"], places)[1] is not None or told != _get_annotations(new).get(annotation):
        return False
    # A job from before there were webhooks has no mirrored terms.
    return told == str(value) or (told is None and QUEUE_NAME in read_labels(old))


def _mirror(new: Object, old: Fields | None, annotation: str, places: tuple[_Place, ...]) -> list[str]:
    place, value = _find(new["spec"], places)
    told = _get_annotations(new).get(annotation)
    if value is None or told == str(value):
        return []
    new["metadata"]["annotations"] = {**_get_annotations(new), annotation: str(value)}
    if told is None or (old is not None and told == _get_annotations(old).get(annotation)):
        return []
    name = ".".join(place)
    return [f"the annotation {annotation} was set to {value}, because it mirrors spec.{name}; change the field instead"]


def _find(spec: Fields, places: tuple[_Place, ...]) -> tuple[_Place, int | None]:
    """The first place with a number, and the number. What else stands there is for validation to refuse."""
    for place in places:
        value: Any = spec
        for name in place:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return place, value
    return (), None


def _get_annotations(job: Fields) -> Mapping[str, Any]:
    found = job["metadata"].get("annotations")
    return found if isinstance(found, Mapping) else {}
