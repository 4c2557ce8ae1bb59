"""The stage of upstream's integration suites: a real API server with admission, the TrainJob controller, no JobSet
controller. The fixture is theirs too: runtime and TrainJob `alpha`, both initializers, one container per job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.golden.harness import build_catalogue
from trainmaster.api.labels import ANCESTOR_STEP
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.contract import PatchType
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

CLUSTER = FrameworkContext(on_cluster=True)
RESOURCES = {"requests": {"cpu": "1", "memory": "4Gi"}}
ALL_JOBS = ("dataset-initializer", "model-initializer", "node")
RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


class Stage:
    def __init__(self, cluster: Cluster, clock: VirtualClock, context: FrameworkContext) -> None:
        self.cluster = cluster
        self.clock = clock
        self.controller = build_controller(context)
        self.notes: list[str] = []

    async def create(self, gvr: GVR, obj: Object) -> Object:
        return await self.cluster.client.create(gvr, deepcopy(obj), obj["metadata"].get("namespace", ""))

    async def start(self, runtime: Object, trainjob: Object) -> None:
        """Both objects, and what the controller makes of them."""
        await self.create_runtime(runtime)
        await self.create(TRAIN_JOBS, trainjob)
        await self.play()

    async def create_runtime(self, runtime: Object) -> Object:
        namespaced = runtime["kind"] == "TrainingRuntime"
        return await self.create(TRAINING_RUNTIMES if namespaced else CLUSTER_TRAINING_RUNTIMES, runtime)

    async def play(self, name: str = "alpha") -> None:
        """Passes until nothing is left to do without time going by."""
        for _ in range(12):
            if not (await self.step(name)).all_writes:
                return
        raise AssertionError("the controller does not come to rest")

    async def step(self, name: str = "alpha") -> Plan:
        request = Request("default", name)
        plan = self.controller.reconcile(self.cluster.view, request, Now(self.clock.now()), ())
        applied = self.cluster.client.apply_atomically(plan.all_writes, field_manager="trainer")
        if applied.refusal is not None:
            plan = self.controller.reconcile(self.cluster.view, request, Now(self.clock.now()), (applied.refusal,))
            assert self.cluster.client.apply_atomically(plan.all_writes, field_manager="trainer").refusal is None
        self.notes += [note.reason for note in plan.notes]
        await self.cluster.settle()
        return plan

    def find(self, gvr: GVR, name: str = "alpha") -> Object | None:
        return self.cluster.view.find(gvr, "default", name)

    def get(self, gvr: GVR, name: str = "alpha") -> Object:
        found = self.find(gvr, name)
        assert found is not None, f"no {gvr.plural} {name}"
        return found

    async def patch(self, gvr: GVR, patch: Object, name: str = "alpha", subresource: str = "") -> Object:
        namespace = "" if gvr == CLUSTER_TRAINING_RUNTIMES else "default"
        return await self.cluster.client.patch(gvr, name, PatchType.MERGE, patch, namespace, subresource=subresource)

    async def report(self, counts: Mapping[str, Mapping[str, int]], condition: tuple[str, str, str] | None) -> None:
        """What a JobSet controller would report: (type, reason, message)."""
        zero = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        status: Object = {"replicatedJobsStatus": [{"name": name, **zero, **own} for name, own in counts.items()]}
        if condition is not None:
            kind, reason, message = condition
            moment = "2026-11-15T12:00:05Z"
            entry = {"type": kind, "status": "True", "reason": reason, "message": message}
            status["conditions"] = [{**entry, "lastTransitionTime": moment}]
        await self.patch(JOB_SETS, {"status": status}, subresource="status")
        await self.play()

    @property
    def jobset(self) -> Object:
        return self.get(JOB_SETS)

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        entries = (self.get(TRAIN_JOBS).get("status") or {}).get("conditions") or ()
        return [(entry["type"], entry["status"], entry["reason"]) for entry in entries]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """jobsStatus without zeros."""
        entries = (self.get(TRAIN_JOBS).get("status") or {}).get("jobsStatus") or ()
        return {e["name"]: {k: v for k, v in e.items() if k != "name" and v} for e in entries}

    def job(self, name: str = "node") -> Object:
        found = next(job for job in self.jobset["spec"]["replicatedJobs"] if job["name"] == name)
        assert isinstance(found, dict)
        return found

    def pod(self, name: str = "node") -> Object:
        pod = self.job(name)["template"]["spec"]["template"]["spec"]
        assert isinstance(pod, dict)
        return pod

    def container(self, job: str = "node", name: str = "") -> Object:
        wanted = name or ("node" if job == "launcher" else job)
        found = next(entry for entry in self.pod(job)["containers"] if entry["name"] == wanted)
        assert isinstance(found, dict)
        return found

    def size(self, name: str = "node") -> tuple[int, int]:
        spec = self.job(name)["template"]["spec"]
        return spec["parallelism"], spec["completions"]


def play(test: Callable[[Stage], Awaitable[None]], *, context: FrameworkContext | None = None) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(clock=clock, kinds=build_catalogue()) as cluster:
            cluster.registry.trainer_admission.embedded = not (context or CLUSTER).on_cluster
            await test(Stage(cluster, clock, context or CLUSTER))

    run_virtual(main(), limit=86_400)


def make_job(name: str, *, label: str = "", **pod: Any) -> Object:
    container = {
        "name": name if name.endswith("initializer") else "node",
        "image": f"{name}:1",
        "resources": deepcopy(RESOURCES),
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": "alpha"}}],
        **pod,
    }
    metadata = {"labels": {ANCESTOR_STEP: label}} if label else {}
    return {"name": name, "template": {"metadata": metadata, "spec": {"template": {"spec": spec}}}}


def make_jobs(*, node: Mapping[str, Any] | None = None) -> list[Object]:
    initializers = [make_job(name, label=name) for name in ALL_JOBS[:2]]
    return [*initializers, make_job("node", label="trainer", **(node or {}))]


def make_runtime(
    policy: Mapping[str, Any] | None = None,
    *,
    jobs: Sequence[Object] | None = None,
    kind: str = "TrainingRuntime",
    name: str = "alpha",
    **spec: Any,
) -> Object:
    metadata: Object = {"name": name}
    if kind == "TrainingRuntime":
        metadata["namespace"] = "default"
    template = {"spec": {"replicatedJobs": list(jobs) if jobs is not None else make_jobs()}}
    ml_policy = {"mlPolicy": {"numNodes": 100} if policy is None else dict(policy)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {**ml_policy, "template": template, **spec},
    }


def make_patch(manager: str = "test.io/manager", *, job: str = "node", pod: Any = None, **template: Any) -> Object:
    """A runtime patch of one job's Pods; without both, of nothing."""
    body: Object = dict(template)
    if pod is not None:
        body["spec"] = {"replicatedJobs": [{"name": job, "template": {"spec": {"template": pod}}}]}
    return {"manager": manager, "trainingRuntimeSpec": {"template": body}}


def make_trainjob(*, name: str = "alpha", kind: str = "TrainingRuntime", runtime: str = "alpha", **spec: Any) -> Object:
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": runtime}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": reference, **spec},
    }


def make_full_trainjob(**spec: Any) -> Object:
    """Upstream's default: suspended, a patch of metadata, an image of its own, and both initializers."""
    marks = {"labels": {"testingKey": "testingVal"}, "annotations": {"testingKey": "testingVal"}}
    trainer = {"image": "test:trainjob", "command": ["trainjob"], "args": ["trainjob"]}
    initializer = {
        "dataset": {"storageUri": "hf://trainjob-dataset"},
        "model": {"storageUri": "hf://trainjob-model"},
    }
    whole = {
        "suspend": True,
        "runtimePatches": [make_patch(metadata=marks)],
        "trainer": trainer,
        "initializer": initializer,
        **spec,
    }
    return make_trainjob(**whole)


COMPLETED = ("Completed", "AllJobsCompleted", "jobset completed successfully")
FAILED = ("Failed", "FailedJobs", "jobset failed due to one or more job failures")
