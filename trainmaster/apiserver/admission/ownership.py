"""Prevents tenants from making objects look as if they belonged to a job.

Services, history, logs and progress reports find the members of a job by labels and annotations of the job controllers.
This plugin refuses them in writes of tenants: on Pods, and in the templates of TrainJobs and runtimes, so that the
author gets the error before a Pod is created. It also refuses owner references to objects that do not exist (by kind,
name and uid in the same namespace); only controllers may set themselves as the controller of a Pod.

Only what a write adds is checked. Members of `system:masters` (the owner of this server and its own controllers) and
namespaces that belong to no tenant are exempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.api.admission import reserved
from trainmaster.api.admission.reserved import MASTERS
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.admission.tenants import belongs_to_tenant
from trainmaster.apiserver.state import RegistryState


class Ownership(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.namespaced and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        new = attributes.new
        owners = list_items(new, "metadata", "ownerReferences")
        before = list_items(attributes.old, "metadata", "ownerReferences")
        prefixes = attributes.kind.tenants.reserved
        if owners == before and not prefixes:
            return
        if MASTERS in attributes.call.identity.groups or not belongs_to_tenant(self._state, attributes.namespace):
            return
        problems = list(self._list_owner_problems(attributes, owners, before))
        if prefixes:
            problems += reserved.list_added(new, attributes.old, prefixes)
        if problems:
            raise reserved.refuse(attributes.kind.gvr, attributes.name, attributes.namespace, problems)

    def _list_owner_problems(
        self, attributes: Attributes, owners: Sequence[Fields], before: Sequence[Fields]
    ) -> Iterator[str]:
        for number, owner in enumerate(owners):
            if owner in before:
                continue
            place = f"metadata.ownerReferences[{number}]"
            kind = self._state.catalogue.find_type(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
            if owner.get("controller") and attributes.kind.tenants.controlled:
                yield f"{place} names a controller, which only controllers do on a {attributes.kind.kind}"
            elif not self._exists(kind, attributes.namespace, owner):
                yield f"{place}: there is no {owner.get('kind')} {owner.get('name')} with that uid in this namespace"

    def _exists(self, kind: Kind | None, namespace: str, owner: Fields) -> bool:
        record = None if kind is None else self._state.find(kind, namespace, str(owner.get("name", "")))
        return record is not None and bool(self._state.parsed.get(record)["metadata"]["uid"] == owner.get("uid"))
