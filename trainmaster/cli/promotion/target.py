"""Reads what a job finds on a cluster, and adapts the job to it. What the user may not read is a finding, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from trainmaster.api.labels import DERIVED, DERIVED_FROM
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations, read_labels
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    LIMIT_RANGES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.cli.launch.manifests import MANAGER
from trainmaster.cli.promotion import findings
from trainmaster.cli.promotion.findings import DIFFERENCE, OBSTACLE, UNCHECKED, Finding
from trainmaster.client.contract import Client, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.frameworks.keys import KeyPair
from trainmaster.controllers.trainjob.children import Children, build_children
from trainmaster.jobs.compose.moving import MoveError, adapt_fields, move_code
from trainmaster.jobs.compose.trainjob import ComposedJob, SupportedFields
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.services.creation.server_fields import DOCUMENT_PATH, list_fields

T = TypeVar("T")
_REHEARSED = WriteOptions(dry_run=True, field_validation="Strict")
_KEPT = ("name", "labels", "annotations")


@dataclass(slots=True)
class Promotion:
    """A job on its way: what will be created there, and what was found out."""

    trainjob: Object
    """As its author wrote it, with the name and the namespace that it has there."""
    runtime: Object
    """What it runs with here."""
    environment: str
    """What ran here in place of its images."""
    config_map: Object | None = None
    """Its packed code."""
    new_runtime: Object | None = None
    found: list[Finding] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return str(self.trainjob["metadata"]["namespace"])

    @property
    def is_possible(self) -> bool:
        return all(one.level != OBSTACLE for one in self.found)

    @property
    def composed(self) -> ComposedJob:
        return ComposedJob(self.new_runtime, self.trainjob, self.config_map)

    def add(self, level: str, about: str, text: str) -> None:
        self.found.append(Finding(level, about, text))


async def read_shape(client: HttpClient) -> SupportedFields:
    """The fields of TrainJobs there; none if there are no TrainJobs."""
    try:
        return SupportedFields(MANAGER, list_fields(orjson.loads((await client.request("GET", DOCUMENT_PATH)).body)))
    except NotFound:
        return SupportedFields(MANAGER, frozenset())


class Target:
    def __init__(self, client: Client, shape: SupportedFields, promotion: Promotion) -> None:
        self._client = client
        self._shape = shape
        self._job = promotion

    async def check(self) -> None:
        """Adapts the promotion and adds everything that was found. The order of reading does not matter, except that
        without the API there is nothing else to say."""
        if not self._adapt():
            return
        runtime = await self._choose_runtime()
        if runtime is None:
            return
        if self._job.config_map is not None and not self._carry_code(runtime):
            return
        runtime = self._job.new_runtime or runtime
        self._job.found += findings.list_fields(self._job.trainjob, self._job.runtime)
        await self._rehearse()
        children = build_children(_read_job(self._job.trainjob), runtime, _CONTEXT)
        if isinstance(children, Children):
            await self._check_pods(children)
        elif self._job.is_possible:  # else the server has said why
            self._job.add(OBSTACLE, "runtime", children.message)

    async def _read(self, about: str, what: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """None if the user may not read it."""
        try:
            return await work()
        except StatusError as error:
            if error.code != 403:
                raise
            self._job.add(UNCHECKED, about, f"you may not read {what} there")
            return None

    # The API

    def _adapt(self) -> bool:
        if not self._shape.fields:
            text = "there are no TrainJobs of trainer.kubeflow.org/v1alpha1: install Kubeflow Trainer, or our operator"
            self._job.add(OBSTACLE, "crd", f"{text} (docs/operator.md)")
            return False
        adapted, changes, missing = adapt_fields(self._job.trainjob, self._shape)
        self._job.trainjob = adapted
        for text in changes:
            self._job.add(DIFFERENCE, "crd", text)
        for name in missing:
            self._job.add(OBSTACLE, "crd", f"TrainJobs have no field spec.{name} there: remove it, or upgrade the CRD")
        return True

    # The runtime

    async def _choose_runtime(self) -> Object | None:
        """The runtime that the job has there; None if there is none."""
        ours = self._job.runtime
        gvr = find_runtime_gvr(self._job.trainjob["spec"]["runtimeRef"])
        assert gvr is not None, "it runs here"
        kind, name = str(ours["kind"]), str(ours["metadata"]["name"])
        namespace = self._job.namespace if gvr == TRAINING_RUNTIMES else ""
        try:
            theirs = await self._read("runtime", f"{gvr.plural} {name}", lambda: self._client.get(gvr, name, namespace))
        except NotFound:
            if gvr == CLUSTER_TRAINING_RUNTIMES:
                names = [one["metadata"]["name"] for one in (await self._client.list(gvr)).items]
                text = f"there is no {kind} {name}; there are: {', '.join(sorted(names)) or 'none'}"
                self._job.add(OBSTACLE, "runtime", f"{text}; create it there, or set spec.runtimeRef")
                return None
            self._job.new_runtime = _copy_runtime(ours, self._job.namespace)
            self._job.add(DIFFERENCE, "runtime", f"the {kind} {name} does not exist there and is created")
            await self._compare_base(ours)
            return self._job.new_runtime
        if DERIVED in read_labels(ours):
            # Sent even if it exists, because it could be deleted with its last job.
            self._job.new_runtime = _copy_runtime(ours, self._job.namespace)
            await self._compare_base(ours)
            return self._job.new_runtime
        if theirs is None:
            return ours
        self._job.found += findings.compare_runtimes(ours, theirs)
        return {**theirs, "kind": kind}

    async def _compare_base(self, derived: Object) -> None:
        """The runtime that `run` made for this job is a copy of one here, which may be another one there."""
        kind, _, name = read_annotations(derived).get(DERIVED_FROM, "").partition("/")
        gvr = find_runtime_gvr({"kind": kind}) if name else None
        if gvr is None:
            return
        namespace = self._job.namespace if gvr == TRAINING_RUNTIMES else ""
        try:
            base = await self._read("runtime", f"{gvr.plural} {name}", lambda: self._client.get(gvr, name, namespace))
        except NotFound:
            return
        if base is not None:
            text = f"a copy of {name} as it is here is sent; in the following, here is the copy and there is {name}"
            self._job.add(DIFFERENCE, "runtime", text)
            self._job.found += findings.compare_runtimes(derived, base)

    def _carry_code(self, runtime: Object) -> bool:
        assert self._job.config_map is not None
        try:
            moved = move_code(self._job.trainjob, runtime, self._job.config_map["metadata"]["name"])
        except MoveError as error:
            self._job.add(OBSTACLE, "code", str(error))
            return False
        self._job.trainjob = moved.trainjob
        self._job.new_runtime = moved.runtime or self._job.new_runtime
        for text in moved.changes:
            self._job.add(DIFFERENCE, "code", text)
        return True

    # The Pods

    async def _check_pods(self, children: Children) -> None:
        jobset, namespace = children.jobset, self._job.namespace
        self._job.found += findings.list_places(jobset, self._job.environment)
        quotas = await self._read("quota", "resourcequotas", lambda: self._client.list(RESOURCE_QUOTAS, namespace))
        if quotas is not None and quotas.items:
            ranges = await self._read("quota", "limitranges", lambda: self._client.list(LIMIT_RANGES, namespace))
            has_defaults = ranges is None or bool(ranges.items)
            self._job.found += findings.check_quotas(quotas.items, jobset, has_defaults=has_defaults)
        made = {(companion.gvr, companion.name) for companion in children.companions}
        for gvr, name in findings.list_references(jobset):
            if (gvr, name) not in made:
                await self._check_reference(gvr, name)

    async def _check_reference(self, gvr: GVR, name: str) -> None:
        namespace = "" if gvr == PRIORITY_CLASSES else self._job.namespace
        try:
            await self._read("reference", f"{gvr.plural} {name}", lambda: self._client.get(gvr, name, namespace))
        except NotFound:
            where = f" in namespace {namespace}" if namespace else ""
            self._job.add(OBSTACLE, "reference", f"its Pods need {gvr.plural} {name}, which does not exist{where}")

    # What the server says

    async def _rehearse(self) -> None:
        """Has the server check everything without storing it. A job cannot be checked before its runtime exists."""
        namespace, code, runtime = self._job.namespace, self._job.config_map, self._job.new_runtime
        steps = [(CONFIG_MAPS, code), (TRAINING_RUNTIMES, runtime), (TRAIN_JOBS, self._job.trainjob)]
        for gvr, obj in steps if runtime is None else steps[:2]:
            if obj is None:
                continue
            try:
                await self._client.create(gvr, obj, namespace, options=_REHEARSED)
            except StatusError as error:
                if error.code >= 500:
                    raise
                if gvr == TRAINING_RUNTIMES and error.reason == "AlreadyExists":
                    continue  # equal, as its name is made from its content
                self._job.add(OBSTACLE, _ABOUT[gvr], f"the server refuses it: {error.message}")
        if runtime is not None:
            await self._check_name()

    async def _check_name(self) -> None:
        name = self._job.trainjob["metadata"]["name"]
        try:
            await self._client.get(TRAIN_JOBS, name, self._job.namespace)
        except NotFound:
            self._job.add(UNCHECKED, "crd", "whether the server takes the job shows when its runtime exists there")
        else:
            self._job.add(OBSTACLE, "name", f"there is a TrainJob {name} already: choose another name with --name")


_ABOUT = {CONFIG_MAPS: "code", TRAINING_RUNTIMES: "runtime", TRAIN_JOBS: "crd"}
_CONTEXT = FrameworkContext(True, make_ssh_keys=lambda: KeyPair("", ""), make_curve_keys=lambda: KeyPair("", ""))


def _read_job(trainjob: Object) -> TrainJob:
    """As if it had been created."""
    return TrainJob({**trainjob, "metadata": {**trainjob["metadata"], "uid": ""}})


def _copy_runtime(runtime: Object, namespace: str) -> Object:
    meta = {key: value for key, value in runtime["metadata"].items() if key in _KEPT}
    meta["annotations"] = dict(read_annotations(runtime))
    return {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainingRuntime",
        "metadata": {**meta, "namespace": namespace},
        "spec": runtime["spec"],
    }
