"""What belongs to a v1 job: the Pods and Services that it controls, and orphans with its labels, which it adopts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, SERVICES
from trainmaster.api.v1jobs.frameworks import JOB_NAME, OPERATOR_NAME
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import V1Job


class V1Children:
    """A job that has ended adopts nothing."""

    def __init__(self, view: View, job: V1Job) -> None:
        self._view = view
        self._job = job
        self.pods = [Pod(raw) for raw in self._claim(PODS)]

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
