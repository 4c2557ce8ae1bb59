"""The admission chain: what looks at a write besides the kind's own declaration.

Plugins run in the order they were added: first all `mutate`, which may change the new object, then, once it is
complete and valid, all `validate`. Either refuses by raising StatusError. In-process writers pass through the same
chain as HTTP clients.

Order of a write: decode, prune, default, mutate (the namespace check comes first), validate, quota, store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from trainmaster.api.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.apiserver.contract import Call


class Operation(Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(slots=True)
class Attributes:
    """One write as plugins see it."""

    call: Call
    kind: Kind
    operation: Operation
    namespace: str
    name: str
    """"" while a generated name is not known yet."""
    new: Object | None
    old: Object | None
    subresource: str = ""
    dry_run: bool = False

    @property
    def creates_pod(self) -> bool:
        return self.kind.plural == "pods" and not self.kind.group and self.operation is Operation.CREATE


class Plugin:
    """Base of admission plugins; override what is needed."""

    def mutate(self, attributes: Attributes) -> None:
        """May change `attributes.new` in place, or refuse."""

    def validate(self, attributes: Attributes) -> None:
        """May refuse. The object is final."""


class Admission:
    """The chain. Plugins are called only for what they override: this is on the path of every write."""

    def __init__(self) -> None:
        self._mutate: list[Callable[[Attributes], None]] = []
        self._validate: list[Callable[[Attributes], None]] = []

    def add(self, plugin: Plugin) -> None:
        if type(plugin).mutate is not Plugin.mutate:
            self._mutate.append(plugin.mutate)
        if type(plugin).validate is not Plugin.validate:
            self._validate.append(plugin.validate)

    def mutate(self, attributes: Attributes) -> None:
        for step in self._mutate:
            step(attributes)

    def validate(self, attributes: Attributes) -> None:
        for step in self._validate:
            step(attributes)
