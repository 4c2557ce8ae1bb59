"""What all objects have: a name, an owner, conditions.

A model is a view of one raw object: creating it takes a microsecond, and properties are computed on access. Callers
that need the same value a thousand times keep it themselves. Objects are never modified through a model, and their spec
or status must not be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import JOBSET_NAME, REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import NOTHING


class ObjectModel:
    __slots__ = ("meta", "raw", "spec", "status")

    def __init__(self, raw: Fields) -> None:
        self.raw = raw
        self.meta: Fields = raw["metadata"]
        # Not properties, because a pass of a controller reads them about fifty times.
        self.spec: Fields = raw.get("spec") or NOTHING
        self.status: Fields = raw.get("status") or NOTHING

    @property
    def kind(self) -> str:
        return str(self.raw.get("kind", ""))

    @property
    def name(self) -> str:
        name: str = self.meta["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.meta.get("namespace", "")
        return namespace

    @property
    def uid(self) -> str:
        uid: str = self.meta["uid"]
        return uid

    @property
    def resource_version(self) -> str:
        return str(self.meta.get("resourceVersion", ""))

    @property
    def head(self) -> Object:
        """The metadata of a patch that applies only to this version of this object."""
        return {"uid": self.uid, "resourceVersion": self.resource_version}

    @property
    def created_at(self) -> str:
        return str(self.meta.get("creationTimestamp", ""))

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.meta.get("labels") or NOTHING
        return labels

    @property
    def annotations(self) -> Mapping[str, str]:
        annotations: Mapping[str, str] = self.meta.get("annotations") or NOTHING
        return annotations

    @property
    def finalizers(self) -> Sequence[str]:
        return self.meta.get("finalizers") or ()

    @property
    def is_deleting(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))

    # Conditions

    @property
    def conditions(self) -> Sequence[Fields]:
        return self.status.get("conditions") or ()

    def find_condition(self, kind: str) -> Fields | None:
        for condition in self.conditions:
            if condition.get("type") == kind:
                return condition
        return None

    def is_true(self, kind: str) -> bool:
        """Whether it has that condition with status True."""
        for condition in self.conditions:
            if condition.get("type") == kind:
                return bool(condition.get("status") == "True")
        return False

    def find_end(self, kinds: Sequence[str]) -> Fields | None:
        """The first of these conditions that is True; None while it has not ended."""
        for condition in self.conditions:
            if condition.get("type") in kinds and condition.get("status") == "True":
                return condition
        return None

    # Owners

    @property
    def owners(self) -> Sequence[Fields]:
        return self.meta.get("ownerReferences") or ()

    @property
    def controller(self) -> Fields | None:
        """The owner reference of its controller, of which there is at most one."""
        for owner in self.owners:
            if owner.get("controller"):
                return owner
        return None

    def is_owned_by(self, uid: str) -> bool:
        """By uid: an object with the same name and another uid is a different one."""
        owner = self.controller
        return owner is not None and owner.get("uid") == uid


class JobSetMember(ObjectModel):
    """A Job or a Pod of a JobSet according to its labels."""

    __slots__ = ()

    @property
    def jobset(self) -> str:
        """The name of its JobSet."""
        return str(self.labels.get(JOBSET_NAME, ""))

    @property
    def step(self) -> str:
        """The ReplicatedJob that it belongs to: `node`, `dataset-initializer`."""
        return str(self.labels.get(REPLICATED_JOB_NAME, ""))

    @property
    def attempt(self) -> int:
        """The number of restarts of its JobSet when it was created."""
        return find_count(str(self.labels.get(RESTART_ATTEMPT, "0"))) or 0


def count(value: Any) -> int:
    """A counter in a status, which may be absent."""
    return value if isinstance(value, int) else 0
