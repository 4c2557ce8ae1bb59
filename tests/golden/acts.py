"""Does what was done to a recorded job, through any `Client`, and notes what is seen: by the harness on our programs in
virtual time, and by `tools/live_golden.py` on upstream's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.golden.masking import Captures, Object, mask_events
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR
from trainmaster.api.resources import EVENTS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.v1jobs.frameworks import BY_KIND
from trainmaster.apiserver.local import LocalClient
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.kit.clock import Clock

NAMESPACE = "default"
STRICT = WriteOptions(field_validation="Strict")
_RECORDED = {
    "TrainJob",
    "JobSet",
    "Job",
    "Pod",
    "Service",
    "ConfigMap",
    "Secret",
    "PersistentVolumeClaim",
    "PodGroup",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "HorizontalPodAutoscaler",
    *BY_KIND,
}


@dataclass
class Outcome:
    """What became of a case."""

    refusal: StatusError | None = None
    """Why the job was not let in."""
    captures: Captures = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)
    answers: list[StatusError | None] = field(default_factory=list)
    """To each patch, in order."""
    unmet: list[str] = field(default_factory=list)
    """Conditions that never came."""
    warnings: list[str] = field(default_factory=list)
    raw: dict[str, list[Object]] = field(default_factory=dict)
    """The captures before masking."""


@dataclass
class Performer:
    """Has the namespace for itself: everything whose name begins with the job's belongs to the job."""

    client: LocalClient | HttpClient
    clock: Clock
    kinds: Catalogue
    patience: float = 900.0
    """Seconds to wait for a condition; the slowest recorded case took 450."""

    def belongs(self, obj: Object, name: str) -> bool:
        return bool(obj["metadata"]["name"].startswith((name, f"initializer-{name}")))

    def is_event_of(self, event: Object, name: str) -> bool:
        return bool(event["involvedObject"]["name"].startswith(name))

    async def prepare_capture(self, job: Object, moment: str) -> None:
        """Before a picture and its pause."""

    async def create(self, obj: Object, *, dry_run: bool = False) -> None:
        kind = self.kinds.find_type(obj["apiVersion"], obj["kind"])
        if kind is None:
            if obj["kind"] == "PersistentVolume":
                return  # what a cluster's storage needs, and nothing that we compare
            raise NotFound(404, "NotFound", f'no matches for kind "{obj["kind"]}" in version "{obj["apiVersion"]}"')
        namespace = obj["metadata"].get("namespace", NAMESPACE) if kind.namespaced else ""
        options = WriteOptions(field_validation="Strict", dry_run=dry_run)
        await self.client.create(kind.gvr, obj, namespace, options=options)

    async def ask(self, job: Object, row: Object) -> StatusError | None:
        """The answer to a manifest (`object`), or to a `patch` of the job, in a dry run; None: let in."""
        options = WriteOptions(field_validation="Strict", dry_run=True)
        try:
            if "object" in row:
                await self.create(row["object"], dry_run=True)
            else:
                name = job["metadata"]["name"]
                await self.client.patch(
                    self.get_gvr(job), name, PatchType.MERGE, row["patch"], NAMESPACE, options=options
                )
        except StatusError as error:
            return error
        return None

    async def perform(self, job: Object, act: Object, outcome: Outcome) -> None:
        name = job["metadata"]["name"]
        if act["do"] == "capture":
            await self.prepare_capture(job, act["name"])
        await self.clock.sleep(act.get("after", 0.0))
        if act["do"] == "capture":
            outcome.raw[act["name"]] = await self.list_objects(name)
        elif act["do"] == "events":
            events = (await self.client.list(EVENTS, NAMESPACE)).items
            outcome.events = mask_events(event for event in events if self.is_event_of(event, name))
        elif act["do"] == "until" and not await self.wait_for(job, act["condition"]):
            outcome.unmet.append(act["condition"])
        elif act["do"] == "create":
            await self.create(job)
        elif act["do"] in ("patch", "delete"):
            try:
                await self._change(job, act)
                outcome.answers.append(None)
            except StatusError as error:
                outcome.answers.append(error)

    async def _change(self, job: Object, act: Object) -> None:
        """The job, or the object that the act names."""
        name = act.get("name") or job["metadata"]["name"]
        gvr = self._find("v1", act["kind"]).gvr if "kind" in act else self.get_gvr(job)
        if act["do"] == "delete":
            await self.client.delete(gvr, name, NAMESPACE)
            return
        subresource = act.get("subresource", "")
        await self.client.patch(
            gvr, name, PatchType.MERGE, act["patch"], NAMESPACE, options=STRICT, subresource=subresource
        )

    def get_gvr(self, job: Object) -> GVR:
        return self._find(job["apiVersion"], job["kind"]).gvr

    def _find(self, api_version: str, kind: str) -> Kind:
        found = self.kinds.find_type(api_version, kind)
        assert found is not None, kind
        return found

    async def wait_for(self, job: Object, condition: str) -> bool:
        end = self.clock.monotonic() + self.patience
        while self.clock.monotonic() < end:
            stored = await self.client.get(self.get_gvr(job), job["metadata"]["name"], NAMESPACE)
            if is_true(list_conditions(stored), condition):
                return True
            await self.clock.sleep(0.25)
        return False

    async def list_objects(self, name: str) -> list[Object]:
        found: list[Object] = []
        for kind in self.kinds.kinds:
            if kind.kind in _RECORDED:
                items = (await self.client.list(kind.gvr, NAMESPACE)).items
                found += (
                    {"apiVersion": kind.api_version, "kind": kind.kind, **item}
                    for item in items
                    if self.belongs(item, name)
                )
        return found
