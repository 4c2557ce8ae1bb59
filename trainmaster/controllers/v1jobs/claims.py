"""What belongs to a v1 job: the Pods and Services that it controls, and orphans with its labels, which it adopts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, PRIORITY_CLASSES, SERVICES
from trainmaster.api.v1jobs.frameworks import JOB_NAME, OPERATOR_NAME
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.v1jobs.names import find_lost_labels
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import V1Job


class V1Children:
    """A job that has ended adopts nothing."""

    def __init__(self, view: View, job: V1Job) -> None:
        self._view = view
        self._job = job
        self.relabelled: list[tuple[Pod, dict[str, str]]] = []
        """Pods whose labels somebody has changed, as they are, and the labels that the job gave them."""
        self.pods = [self._correct(Pod(raw)) for raw in self._claim(PODS)]

    def _correct(self, pod: Pod) -> Pod:
        """The Pod with the labels that the job gave it."""
        labels = find_lost_labels(self._job, pod)
        if labels is None:
            return pod
        self.relabelled.append((pod, labels))
        return Pod({**pod.raw, "metadata": {**pod.meta, "labels": {**pod.labels, **labels}}})

    @cached_property
    def services(self) -> dict[str, ObjectModel]:
        if not self._job.framework.has_services:
            return {}
        return {one.name: one for one in map(ObjectModel, self._claim(SERVICES))}

    def list_adoptions(self) -> Iterator[Patch]:
        reference = build_owner_reference(self._job.raw)
        for gvr, found in ((PODS, self.pods), (SERVICES, self.services.values())):
            for one in found:
                if one.controller is None:
                    owners = [*one.owners, reference]
                    yield build_patch(gvr, one, {"metadata": {"ownerReferences": owners}}, versioned=True)

    def find(self, gvr: GVR, name: str) -> ObjectModel | None:
        found = self._view.find(gvr, self._job.namespace, name)
        return None if found is None else ObjectModel(found)

    def find_foreign(self, gvr: GVR, name: str) -> Waiting | None:
        """Why an object of that name cannot be created: one exists that does not belong to the job."""
        found = self.find(gvr, name)
        return None if found is None or found.is_owned_by(self._job.uid) else self.explain_taken(gvr, found)

    def explain_taken(self, gvr: GVR, found: ObjectModel) -> Waiting:
        owner = found.controller
        if found.is_deleting:
            return Waiting("LeftoverPod", f'{gvr.plural} "{found.name}" of an earlier job is still being deleted')
        whose = "has no owner" if owner is None else f"belongs to the {owner.get('kind')} {owner.get('name')}"
        return Waiting("NameConflict", f'{gvr.plural} "{found.name}" already exists; it {whose}')

    def get_priority(self, name: str) -> int:
        """The value of a PriorityClass; 0 if there is none of that name."""
        found = self._view.find(PRIORITY_CLASSES, "", name) if name else None
        return 0 if found is None else int(found["value"])

    def _claim(self, gvr: GVR) -> Iterator[Object]:
        job = self._job
        yield from self._view.owned(gvr, job.namespace, job.uid)
        if job.is_finished:
            return
        labels = {OPERATOR_NAME: job.framework.controller, JOB_NAME: job.name}
        for raw in self._view.list(gvr, job.namespace, labels):
            one = ObjectModel(raw)
            if one.controller is None and not one.is_deleting:
                yield raw
