"""LimitRange: defaults and bounds for requests and limits of the Pods of a namespace.

Defaults apply to containers that specify nothing; bounds and ratios (maxLimitRequestRatio) are checked per container
and per Pod. Messages are upstream's. Bounds of the type PersistentVolumeClaim have no effect here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.resources import LIMIT_RANGES, PODS
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import AdmissionOperation, Attributes, Plugin, is_new_pod
from trainmaster.apiserver.admission.quotas import show
from trainmaster.store.contract import Store

_BUCKET = LIMIT_RANGES.collection
_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanges(Plugin):
    def __init__(self, store: Store) -> None:
        self._store = store

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return is_new_pod(kind, operation)

    def mutate(self, attributes: Attributes) -> None:
        for limits in self._find(attributes):
            for limit in limits:
                if limit.get("type") == "Container":
                    fill_in(attributes.new, limit)

    def validate(self, attributes: Attributes) -> None:
        errors: list[str] = []
        for limits in self._find(attributes):
            spec = attributes.new["spec"]
            for limit in limits:
                if limit.get("type") == "Container":
                    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
                        errors += _check(limit, _amounts(container, "requests"), _amounts(container, "limits"))
                elif limit.get("type") == "Pod":
                    errors += _check(limit, _total(spec, "requests"), _total(spec, "limits"))
        if errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            raise status.forbidden(PODS, attributes.name, text)

    def _find(self, attributes: Attributes) -> list[Sequence[Fields]]:
        records = self._store.scan(_BUCKET, f"{attributes.namespace}/")
        return [list_items(stored.parse(record.value), "spec", "limits") for record in records]


def fill_in(pod: Object, limit: Fields) -> None:
    """Adds the defaults of an entry of the type Container."""
    notes: list[str] = []
    for container in [*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", [])]:
        resources = container.setdefault("resources", {})
        for section, source, word in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
            known = read_fields(resources, section)
            # A limit without a request is also the request; the default is for containers with neither.
            skip = read_fields(resources, "limits") if section == "requests" else {}
            added = {
                name: value
                for name, value in read_fields(limit, source).items()
                if name not in known and name not in skip
            }
            if section == "requests":
                added |= {name: value for name, value in skip.items() if name not in known}
            named = sorted(set(added) - set(skip))
            if added:
                resources[section] = {**known, **added}
            if named:
                notes.append(f"{', '.join(named)} {word} for container {container.get('name', '')}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations.setdefault(_ANNOTATION, "LimitRanger plugin set: " + "; ".join(notes))


def _amounts(container: Fields, section: str) -> dict[str, Fraction]:
    found = read_fields(container, "resources", section)
    return {name: quantity.parse(value) for name, value in found.items()}


def _total(spec: Fields, section: str) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for container in spec.get("containers", []):
        for name, value in _amounts(container, section).items():
            total[name] = total.get(name, Fraction(0)) + value
    for container in spec.get("initContainers", []):
        for name, value in _amounts(container, section).items():
            total[name] = max(total.get(name, Fraction(0)), value)
    return total


def _check(limit: Fields, requests: dict[str, Fraction], limits: dict[str, Fraction]) -> list[str]:
    errors: list[str] = []
    what = limit["type"]
    for name, bound in sorted(read_fields(limit, "min").items()):
        least, shown = quantity.parse(bound), quantity.canonical(bound)
        if name not in requests:
            errors.append(f"minimum {name} usage per {what} is {shown}.  No request is specified")
        elif requests[name] < least:
            text = f"minimum {name} usage per {what} is {shown}, but request is {show(requests[name], bound)}"
            errors.append(text)
        elif name in limits and limits[name] < least:
            errors.append(f"minimum {name} usage per {what} is {shown}, but limit is {show(limits[name], bound)}")
    for name, bound in sorted(read_fields(limit, "max").items()):
        most, shown = quantity.parse(bound), quantity.canonical(bound)
        if name not in limits:
            errors.append(f"maximum {name} usage per {what} is {shown}.  No limit is specified")
        elif limits[name] > most:
            errors.append(f"maximum {name} usage per {what} is {shown}, but limit is {show(limits[name], bound)}")
        elif requests.get(name, Fraction(0)) > most:
            text = f"maximum {name} usage per {what} is {shown}, but request is {show(requests[name], bound)}"
            errors.append(text)
    return errors + _check_ratio(limit, requests, limits)


def _check_ratio(limit: Fields, requests: dict[str, Fraction], limits: dict[str, Fraction]) -> list[str]:
    errors: list[str] = []
    for name, bound in sorted(read_fields(limit, "maxLimitRequestRatio").items()):
        asked, most = requests.get(name, Fraction(0)), limits.get(name, Fraction(0))
        kind = f"{name} max limit to request ratio per {limit['type']} is {quantity.canonical(bound)}"
        if not asked or not most:
            errors.append(f"{kind}, but no request is specified or request is 0")
        elif most / asked > quantity.parse(bound):
            errors.append(f"{kind}, but provided ratio is {float(most / asked):.6f}")
    return errors
