"""How a reconciler builds its plan: a draft collects what a pass decides and becomes a `Plan` at the end.

Every patch and delete names the uid of the object that the reconciler saw, so it never reaches a new object with the
same name. A versioned one also names the resourceVersion, and is refused if the object has changed since.
"""

from __future__ import annotations

from trainmaster.api import conditions
from trainmaster.api.conditions import Condition
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.patches import merge
from trainmaster.client.writes import Delete, Patch, Write
from trainmaster.engine.plan import Effect, Note, Plan
from trainmaster.jobs.models.objects import ObjectModel


def build_patch(gvr: GVR, obj: ObjectModel, patch: Fields, *, versioned: bool = False, subresource: str = "") -> Patch:
    """`patch` is a merge patch; its metadata may contain labels, annotations and owner references."""
    head = obj.head if versioned else {"uid": obj.uid}
    metadata = patch.get("metadata")
    body = {**patch, "metadata": {**head, **metadata} if metadata else head}
    return Patch(gvr, obj.namespace, obj.name, body, subresource)


def build_delete(gvr: GVR, obj: ObjectModel, *, versioned: bool = False, propagation: str = "Background") -> Delete:
    version = obj.resource_version if versioned else ""
    return Delete(gvr, obj.namespace, obj.name, obj.uid, version, propagation)


class Draft:
    """Collects writes in the order to apply them, events, effects, and the time of the next pass."""

    __slots__ = ("_requeue_after", "effects", "notes", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.notes: list[Note] = []
        self.effects: list[Effect] = []
        self._requeue_after: float | None = None

    def write(self, write: Write | None) -> None:
        """None is ignored."""
        if write is not None:
            self.writes.append(write)

    def note(
        self, about: ObjectModel, reason: str, message: str, *, warning: bool = False, action: str = "Reconciling"
    ) -> None:
        self.notes.append(Note(about.raw, reason, message, warning, action))

    def wake_after(self, seconds: float | None) -> None:
        """Asks for another pass. The earliest request wins; None is ignored."""
        if seconds is not None and (self._requeue_after is None or seconds < self._requeue_after):
            self._requeue_after = seconds

    def build_plan(self) -> Plan:
        return Plan(
            tuple(self.writes), self._build_status(), tuple(self.notes), self._requeue_after, tuple(self.effects)
        )

    def _build_status(self) -> Patch | None:
        return None


class ObjectDraft(Draft):
    """The draft of a pass over one object. It also holds the new status, which is written only if it has changed."""

    __slots__ = ("_conditions", "_gvr", "_is_versioned", "_obj", "annotations", "status")

    def __init__(self, gvr: GVR, obj: ObjectModel, *, versioned: bool = True) -> None:
        """`versioned` applies to the status patch. Pass False if another write of the plan changes the object."""
        super().__init__()
        self._gvr = gvr
        self._obj = obj
        self._is_versioned = versioned
        self.status: Object = dict(obj.status)
        self._conditions = obj.conditions
        self.annotations: dict[str, str | None] = {}
        """Written in the same patch as the status; None removes an annotation."""

    def find_condition(self, kind: str) -> Fields | None:
        return conditions.find_condition(self._conditions, kind)

    def is_true(self, kind: str) -> bool:
        return conditions.is_true(self._conditions, kind)

    def set_condition(self, condition: Condition) -> None:
        self.status["conditions"] = self._conditions = conditions.set_condition(self._conditions, condition)

    def postpone_status(self) -> None:
        """Leaves the status and the events so far to the next pass, because this one changes the object itself."""
        self.status = dict(self._obj.status)
        self._conditions = self._obj.conditions
        self.notes.clear()

    def _build_status(self) -> Patch | None:
        if self.status == self._obj.status and not self.annotations:
            return None
        changed = merge.build_patch(self._obj.status, self.status)
        before = self._obj.annotations
        annotations = {key: value for key, value in self.annotations.items() if before.get(key) != value}
        if not changed and not annotations:
            return None
        patch: Object = {"status": changed}
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        return build_patch(self._gvr, self._obj, patch, versioned=self._is_versioned, subresource="status")
