"""Restricts the packages of tenants to names from the package index.

A requirement that is a path or a URL may be the tenant's own code, which an installer would execute to build it. It is
refused in TrainJobs, runtimes, JobSets and Jobs, so that the author gets the error immediately, and in Pods, so that it
cannot be bypassed. It is allowed in the owner's namespaces, where it is built in a sandbox.
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
        if not belongs_to_tenant(self._state, attributes.namespace):
            return
        problems = _list_problems(attributes.kind, attributes.new)
        if not problems:
            return
        # Stored objects can still be changed, so that their jobs can be stopped and cleaned up.
        known = _list_problems(attributes.kind, attributes.old) if attributes.old is not None else []
        errors = [error for error in problems if error not in known]
        if errors:
            raise status.invalid(attributes.kind.group, attributes.kind.kind, attributes.name, errors)


def _list_problems(kind: Kind, obj: Object) -> list[fields.FieldError]:
    """The problems of an object. A Pod contains no templates."""
    return list_problems({"metadata": obj["metadata"]} if is_pod(kind) else obj)


def list_problems(obj: Object) -> list[fields.FieldError]:
    """An error for each forbidden requirement, in the annotations of the object and of its templates."""
    found = []
    for place, text in list_package_notes(obj):
        path = f"{place}.annotations[{PACKAGES}]"
        found += [fields.invalid(path, entry, problem) for entry, problem in packages.list_problems(text)]
    return found


def list_package_notes(obj: Object) -> Iterator[tuple[str, str]]:
    """(path, annotation) of the object and its nested templates. Not recursive, because the input is untrusted."""
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
