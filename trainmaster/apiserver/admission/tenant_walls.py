"""Walls between tenants on one machine: Pods in a tenant's namespace run as its Unix user, and as nobody else.

An admission plugin, so nothing gets around it: controllers' Pods pass through it like everybody's. What a Pod does not
say is filled in; what it says otherwise is refused with all reasons at once. Namespaces without a Unix user
(`api.tenancy.UNIX_USER`) are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import DEVICES, MIRROR
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_annotations, read_fields
from trainmaster.api.resources import NAMESPACES, PODS
from trainmaster.api.tenancy import find_unix_user
from trainmaster.apiserver.admission.chain import Attributes, Plugin, is_pod
from trainmaster.apiserver.state import RegistryState

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_HOST = ("hostNetwork", "hostPID", "hostIPC")


class Walls(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind) -> bool:
        return is_pod(kind)

    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates_pod or attributes.new is None:
            return
        user = self._find_user(attributes.namespace)
        if user is None:
            return
        problems = list(list_problems(attributes.new, user))
        if problems:
            text = f"namespace {attributes.namespace} belongs to a tenant: {'; '.join(problems)}"
            raise status.forbidden(PODS, attributes.name, text)
        context = read_fields(attributes.new, "spec", "securityContext")
        attributes.new["spec"]["securityContext"] = {**context, "runAsUser": user, "runAsGroup": user, "fsGroup": user}

    def _find_user(self, namespace: str) -> int | None:
        record = self._state.store.get(NAMESPACES.collection, namespace)
        return None if record is None else find_unix_user(self._state.parsed.get(record))


def list_problems(pod: Fields, user: int) -> Iterator[str]:
    """What a Pod asks for that would lead it outside."""
    spec: Fields = pod["spec"]
    for field in _HOST:
        if spec.get(field):
            yield f"spec.{field} is not allowed"
    if spec.get("nodeName"):
        yield "spec.nodeName is the scheduler's, which counts what everybody takes; leave it out"
    for volume in list_items(spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"volume {volume.get('name')} is a hostPath; use an emptyDir or a PersistentVolumeClaim"
    if spec.get("nodeName"):
        yield "spec.nodeName is the scheduler's: a Pod that names its node would pass everybody who waits"
    annotations = read_annotations(pod)
    if MIRROR in annotations:
        yield f"annotation {MIRROR} is for parts of the control plane"
    if DEVICES in annotations:
        yield f"annotation {DEVICES} is the scheduler's; ask for devices in resources.limits"
    shared = read_fields(spec, "securityContext")
    yield from _list_identities("spec.securityContext", shared, user)
    if any(group != user for group in list_items(shared, "supplementalGroups")):
        yield f"spec.securityContext.supplementalGroups may name {user} only"
    for field in _CONTAINERS:
        for container in list_items(spec, field):
            own = read_fields(container, "securityContext")
            place = f"container {container.get('name')}: securityContext"
            yield from _list_identities(place, own, user)
            if own.get("privileged") or own.get("allowPrivilegeEscalation"):
                yield f"{place} must not ask for privileges"
            if list_items(own, "capabilities", "add"):
                yield f"{place}.capabilities.add is not allowed"


def _list_identities(place: str, context: Fields, user: int) -> Iterator[str]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        asked = context.get(field)
        if asked is not None and asked != user:
            yield f"{place}.{field} is {asked} and must be {user}, or left out"
