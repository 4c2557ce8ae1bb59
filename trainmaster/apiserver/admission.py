"""The admission chain: what looks at a write besides the kind's own declaration.

Plugins run in the order they were added: first all `mutate`, which may change the new object, then, once it is
complete and valid, all `validate`. Either refuses by raising StatusError. In-process writers pass through the same
chain as HTTP clients.

Order of a write: decode, prune, default, mutate (the namespace check comes first), validate, quota, store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


class Plugin:
    """Base of admission plugins; override what is needed."""

    def mutate(self, attributes: Attributes) -> None:
        """May change `attributes.new` in place, or refuse."""

    def validate(self, attributes: Attributes) -> None:
        """May refuse. The object is final."""


@dataclass(slots=True)
class Admission:
    plugins: list[Plugin] = field(default_factory=list)

    def add(self, plugin: Plugin) -> None:
        self.plugins.append(plugin)

    def mutate(self, attributes: Attributes) -> None:
        for plugin in self.plugins:
            plugin.mutate(attributes)

    def validate(self, attributes: Attributes) -> None:
        for plugin in self.plugins:
            plugin.validate(attributes)
