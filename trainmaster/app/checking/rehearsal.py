"""Creates objects on a temporary server in memory to see whether they are accepted. Used by `trainmaster check`
and the REST API.

It is the real registry with all admission plug-ins, so it refuses the same objects, with the same messages. The JobSet
that the controller would create for a TrainJob and the Pods of a v1 job are checked too. Objects are created in order,
so a TrainJob may use a runtime that comes before it. Namespaces and the shipped runtimes are assumed to exist. Nothing
is written to disk.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from trainmaster.api.admission.trainjobs import find_runtime
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import AlreadyExists, StatusError
from trainmaster.api.training.references import TRAINJOB_CONTROLLER
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.local import SYSTEM
from trainmaster.apiserver.local_view import LocalView
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.contract import WriteOptions
from trainmaster.client.listed import ListedView
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.frameworks.keys import KeyPair
from trainmaster.controllers.install import list_manifests, parse_manifest
from trainmaster.controllers.scheduler.ledger import V1_MODELS
from trainmaster.controllers.trainjob.children import Children, build_children
from trainmaster.controllers.v1jobs.pods import build_pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.jobs.submission.documents import read_namespace
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import SystemIds
from trainmaster.store.memory import MemoryStore

_STRICT = WriteOptions(field_validation="Strict")
_PLAIN = WriteOptions()
_LOOKED_UP = ("serviceAccountName", "serviceAccount", "priorityClassName")
"""Fields of a Pod that name objects, which may exist on a server."""
_KEPT = ("name", "namespace", "labels", "annotations")
"""Metadata of a server's runtime that its copy has."""


@dataclass(slots=True)
class RehearsalOutcome:
    """The response of a server to one object."""

    errors: list[tuple[str, str]] = field(default_factory=list)
    """(path of the field or "", message)"""
    warnings: list[str] = field(default_factory=list)
    workload: Object | None = None
    """The stored JobSet, v1 job, Job or Pod of an object that runs something; for a TrainJob the JobSet that it
    becomes."""
    exists: bool = False
    """An earlier document has created the object; that is not an error."""


class Rehearsal:
    def __init__(self, registry: ObjectRegistry, runtimes: ListedView | None = None) -> None:
        """`runtimes`: a view of a server, whose runtimes are used instead of the shipped ones."""
        self.catalogue: Catalogue = registry.catalogue
        self._registry = registry
        self._view = LocalView(registry)
        self._runtimes = runtimes

    @property
    def knows_runtimes(self) -> bool:
        """Whether it has the runtimes of a server."""
        return self._runtimes is not None and not self._runtimes.missing & {
            TRAINING_RUNTIMES,
            CLUSTER_TRAINING_RUNTIMES,
        }

    def close(self) -> None:
        self._view.close()

    def find_kind(self, obj: Object) -> Kind | None:
        return self.catalogue.find_type(str(obj.get("apiVersion")), str(obj.get("kind")))

    def create(self, kind: Kind, given: Object, namespace: str) -> RehearsalOutcome:
        """`given` is not changed."""
        outcome = RehearsalOutcome()
        where = self._choose_namespace(kind, given, namespace)
        if where:
            self._ensure_namespace(where)
        if kind.gvr == TRAIN_JOBS:
            self._ensure_runtime(given, where)
        call = Call(SYSTEM)
        try:
            written = self._registry.create(call, kind, where, copy.deepcopy(given), _STRICT)
        except AlreadyExists:
            outcome.exists = True
        except StatusError as error:
            outcome.errors += _list_causes(error)
        else:
            stored: Object = orjson.loads(written.value)
            if kind.gvr == TRAIN_JOBS:
                self._follow(stored, outcome)
            elif kind.gvr in V1_MODELS:
                self._follow_v1(V1_MODELS[kind.gvr](stored), outcome)
            elif kind.gvr in (JOB_SETS, JOBS, PODS):
                outcome.workload = stored
        outcome.warnings += call.warnings
        return outcome

    def _choose_namespace(self, kind: Kind, given: Object, namespace: str) -> str:
        return read_namespace(given) or namespace if kind.namespaced else ""

    def _ensure_namespace(self, name: str) -> None:
        kind = self.catalogue.find(NAMESPACES)
        assert kind is not None, "always served"
        obj: Object = {"metadata": {"name": name}}
        try:
            self._registry.create(Call(SYSTEM), kind, "", obj, _PLAIN)
        except StatusError:
            return  # it exists, or its name is invalid; in that case the object is refused with a better message

    def _ensure_runtime(self, trainjob: Object, namespace: str) -> None:
        """Creates the runtime that the job refers to: that of the server, else a shipped one. Reading all would take
        longer."""
        spec = trainjob.get("spec")
        reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
        if not isinstance(reference, dict) or not isinstance(reference.get("name"), str):
            return
        is_shared = reference.get("kind", "ClusterTrainingRuntime") == "ClusterTrainingRuntime"
        gvr, space = (CLUSTER_TRAINING_RUNTIMES, "") if is_shared else (TRAINING_RUNTIMES, namespace)
        found = self._find_known(gvr, space, reference["name"])
        kind = self.catalogue.find(gvr)
        assert kind is not None, "always served"
        if found is not None and self._view.find(gvr, space, reference["name"]) is None:
            self._registry.create(Call(SYSTEM), kind, space, found, _PLAIN)

    def _find_known(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        if self._runtimes is not None and self.knows_runtimes:
            found = self._runtimes.find(gvr, namespace, name)
            if found is None:
                return None
            return {**found, "metadata": {key: value for key, value in found["metadata"].items() if key in _KEPT}}
        shipped = dict(list_manifests()) if gvr == CLUSTER_TRAINING_RUNTIMES else {}
        return parse_manifest(shipped[name]) if name in shipped else None

    def _follow(self, trainjob: Object, outcome: RehearsalOutcome) -> None:
        """The JobSet that the controller would create, or the problems that it would find."""
        runtime = find_runtime(trainjob, self._view)
        if runtime is None or trainjob["spec"].get("managedBy", TRAINJOB_CONTROLLER) != TRAINJOB_CONTROLLER:
            return
        context = FrameworkContext(make_ssh_keys=_make_no_keys, make_curve_keys=_make_no_keys)
        children = build_children(TrainJob(trainjob), runtime, context)
        if not isinstance(children, Children):
            outcome.errors.append(("", children.message))
            return
        kind = self.catalogue.find(JOB_SETS)
        assert kind is not None, "always served"
        namespace = trainjob["metadata"]["namespace"]
        try:
            written = self._registry.create(Call(SYSTEM), kind, namespace, children.jobset, _PLAIN)
        except AlreadyExists:
            return
        except StatusError as error:
            outcome.errors.append(("", f"the JobSet that it becomes is refused: {error.message}"))
        else:
            outcome.workload = orjson.loads(written.value)

    def _follow_v1(self, job: V1Job, outcome: RehearsalOutcome) -> None:
        """One Pod of each type; the others have the same template."""
        if not job.is_managed_here:
            return
        kind = self.catalogue.find(PODS)
        assert kind is not None, "always served"
        outcome.workload = dict(job.raw)
        for replica in job.replicas.values():
            pod = build_pod(job, replica, 0)
            for name in _LOOKED_UP:
                pod["spec"].pop(name, None)
            try:
                self._registry.create(Call(SYSTEM), kind, job.namespace, pod, _PLAIN)
            except AlreadyExists:
                continue
            except StatusError as error:
                outcome.errors.append(("", f"its Pods of the type {replica.type} are refused: {error.message}"))


@asynccontextmanager
async def open_rehearsal(clock: Clock, runtimes: ListedView | None = None) -> AsyncIterator[Rehearsal]:
    registry = ObjectRegistry(MemoryStore(), catalogue.build(), clock, SystemIds())
    async with registry.running(has_definitions=False):
        rehearsal = Rehearsal(registry, runtimes)
        try:
            yield rehearsal
        finally:
            rehearsal.close()
            registry.close()


def _list_causes(error: StatusError) -> list[tuple[str, str]]:
    """One cause per field; the whole message if it names no field."""
    found = [(one["field"], one.get("message", "")) for one in error.causes if one.get("field")]
    return found or [("", error.message)]


def _make_no_keys() -> KeyPair:
    return KeyPair("", "")
