"""What a tenant may have installed: packages of the index by name, and nothing of its own making.

An admission plugin. A requirement that is a path or a URL names code that the tenant wrote, and an installer runs such
code to find out what it is. It is refused on TrainJobs, runtimes, JobSets and Jobs, so that the author is told at once,
and on Pods, so that nothing gets around it. The owner's namespaces are not touched: there it is built in a sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import packages
from trainmaster.api.labels import PACKAGES
from trainmaster.api.meta import Object
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin, is_pod
from trainmaster.apiserver.admission.tenants import belongs_to_tenant
from trainmaster.apiserver.state import RegistryState


class TenantPackages(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        is_workload = kind.tenants.list_gangs is not None or is_pod(kind)
        return kind.namespaced and is_workload and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        problems = _list_problems(attributes.kind, attributes.new)
        if not problems or not belongs_to_tenant(self._state, attributes.namespace):
            return
        # What was stored before stays changeable: it must be possible to stop and to clean up.
        known = _list_problems(attributes.kind, attributes.old) if attributes.old is not None else []
        errors = [error for error in problems if error not in known]
        if errors:
            raise status.invalid(attributes.kind.group, attributes.kind.kind, attributes.name, errors)


def _list_problems(kind: Kind, obj: Object) -> list[fields.FieldError]:
    """A Pod has no templates in it."""
    return list_problems({"metadata": obj["metadata"]} if is_pod(kind) else obj)


def list_problems(obj: Object) -> list[fields.FieldError]:
    """One for each requirement that a tenant may not have, wherever in the object the annotation stands."""
    found = []
    for place, text in list_package_notes(obj):
        path = f"{place}.annotations[{PACKAGES}]"
        found += [fields.invalid(path, entry, problem) for entry, problem in packages.list_problems(text)]
    return found


def list_package_notes(obj: Object) -> Iterator[tuple[str, str]]:
    """Templates nest in templates; without recursion, because the object is somebody's input."""
    left: list[tuple[str, object]] = [("", obj)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            notes = value.get("annotations")
            if isinstance(notes, dict) and isinstance(notes.get(PACKAGES), str):
                yield place, notes[PACKAGES]
            left += [(f"{place}.{key}" if place else key, one) for key, one in value.items() if _is_nested(key, one)]
        elif isinstance(value, list):
            left += [(f"{place}[{number}]", one) for number, one in enumerate(value) if _is_nested("", one)]


def _is_nested(key: str, value: object) -> bool:
    return isinstance(value, dict | list) and key not in ("annotations", "labels", "managedFields", "status")
