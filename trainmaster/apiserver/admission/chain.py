"""The admission chain: checks of a write beyond the declaration of its kind.

Plugins run in the order they were added: first all `mutate`, which may change the new object, then, once it is
complete and valid, all `validate`. Either refuses by raising StatusError. In-process writers pass through the same
chain as HTTP clients.

Order of a write: decode, prune, default, mutate (the namespace check comes first), validate, quota, store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.apiserver.contract import Call


class AdmissionOperation(StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


CREATE, UPDATE, DELETE = AdmissionOperation
"""Constants, because looking up an attribute of an enum takes longer than most plugins."""


def is_pod(kind: Kind) -> bool:
    return kind.gvr == PODS


def is_new_pod(kind: Kind, operation: AdmissionOperation) -> bool:
    return kind.gvr == PODS and operation is CREATE


@dataclass(slots=True)
class Attributes:
    """One write as plugins see it."""

    call: Call
    kind: Kind
    operation: AdmissionOperation
    namespace: str
    name: str
    """"" while a generated name is not known yet."""
    new: Object
    """Empty for a deletion."""
    old: Object | None
    subresource: str = ""
    dry_run: bool = False


Step: TypeAlias = Callable[[Attributes], None]


class Plugin:
    """Base of admission plugins; override what is needed."""

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        """Whether the plugin is called for such writes of this kind. Called once per kind and operation."""
        return True

    def follows_status(self, kind: Kind) -> bool:
        """Whether the plugin is also called for writes to the status subresource."""
        return False

    def mutate(self, attributes: Attributes) -> None:
        """May change `attributes.new` in place, or refuse."""

    def validate(self, attributes: Attributes) -> None:
        """May refuse. The object is final."""


class Admission:
    """The chain. For speed, it calls only plugins that the kind concerns, and only methods that they override."""

    def __init__(self) -> None:
        self._plugins: list[Plugin] = []
        self._chains: dict[tuple[Kind, AdmissionOperation, str], tuple[Sequence[Step], Sequence[Step]]] = {}
        """(mutate, validate) functions by kind, operation and subresource."""

    def add(self, plugin: Plugin) -> None:
        self._plugins.append(plugin)
        self._chains.clear()

    def mutate(self, attributes: Attributes) -> None:
        for step in self._get_chain(attributes.kind, attributes.operation, attributes.subresource)[0]:
            step(attributes)

    def validate(self, attributes: Attributes) -> None:
        for step in self._get_chain(attributes.kind, attributes.operation, attributes.subresource)[1]:
            step(attributes)

    def ignores_status(self, kind: Kind) -> bool:
        """Whether no plugin is called for status writes of this kind."""
        return not any(self._get_chain(kind, UPDATE, "status"))

    def _get_chain(
        self, kind: Kind, operation: AdmissionOperation, subresource: str
    ) -> tuple[Sequence[Step], Sequence[Step]]:
        key = (kind, operation, subresource)
        return self._chains.get(key) or self._build_chain(*key)

    def _build_chain(
        self, kind: Kind, operation: AdmissionOperation, subresource: str
    ) -> tuple[Sequence[Step], Sequence[Step]]:
        concerned = [plugin for plugin in self._plugins if plugin.concerns(kind, operation)]
        if subresource == "status":
            concerned = [plugin for plugin in concerned if plugin.follows_status(kind)]
        mutate = [plugin.mutate for plugin in concerned if type(plugin).mutate is not Plugin.mutate]
        validate = [plugin.validate for plugin in concerned if type(plugin).validate is not Plugin.validate]
        chain = self._chains[kind, operation, subresource] = (mutate, validate)
        return chain
