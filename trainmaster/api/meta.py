"""Names for the shapes that travel on the wire.

Objects are plain JSON mappings everywhere in the server: unknown fields survive, and nothing is parsed into
classes that would forget them. Reconcilers read through the models of `jobs.models` and write patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType, TypeAlias

Object: TypeAlias = dict[str, Any]
"""One API object as parsed JSON. Treat what you did not create as read-only; copy the branch you change."""

Fields: TypeAlias = Mapping[str, Any]
"""An object or a part of one, for reading."""

Uid = NewType("Uid", str)
Revision = NewType("Revision", int)


class GVR(NamedTuple):
    """Which collection: API group ("" is core), version and plural, as in a request path.

    A tuple, because it is the key of look-ups on every request.
    """

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> str:
        """What all versions share: `batch/jobs`, `pods`. Objects are stored under it."""
        return f"{self.group}/{self.plural}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The form error messages use: `trainjobs.trainer.kubeflow.org`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which object within a collection; namespace is "" for cluster-scoped kinds."""

    namespace: str
    name: str
