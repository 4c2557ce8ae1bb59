"""Writes that admission decides about, to be sent to both servers: what is done first, and the write that is judged.

Objects are made anew for each server; `NS` in a text stands for the namespace, whose name differs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.flow.stage import make_trainjob
from tests.unit.apiserver.admission.test_runtime_use import make_runtime
from trainmaster.api.labels import ALLOW_DELETE_IN_USE, DERIVED
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, ENFORCED_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAIN_JOBS, TRAINING_RUNTIMES

GVRS = {
    "TrainJob": TRAIN_JOBS,
    "TrainingRuntime": TRAINING_RUNTIMES,
    "ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES,
    "ConfigMap": CONFIG_MAPS,
}
MARK = "jobset.sigs.k8s.io/jobset-uid"

Change = Callable[[Object], None]


@dataclass(frozen=True)
class Case:
    """The last of `objects` is created, after the others; or all are created, and the first one is changed or
    deleted."""

    objects: tuple[Object, ...]
    change: Change | None = None
    """PUT of the first object with this change."""
    delete: bool = False
    as_tenant: bool = False
    """In the namespace of a tenant, by somebody who is no administrator."""
    words: str = ""
    """A part of the refusal; "" is accepted."""


def gvr_of(obj: Object) -> GVR:
    return GVRS[obj["kind"]]


def job(**spec: Any) -> Object:
    return make_trainjob(runtime="torch-distributed", **spec)


def annotate(obj: Object, annotations: dict[str, str]) -> Object:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


def runtime(gvr: GVR = TRAINING_RUNTIMES, name: str = "own", **spec: Any) -> Object:
    made = make_runtime(gvr, name)
    made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"] = {
        "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    }
    return {**made, "spec": {**made["spec"], **spec}}


def user_of(made: Object, **spec: Any) -> Object:
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": made["kind"], "name": made["metadata"]["name"]}
    return {**make_trainjob(), "spec": {"runtimeRef": reference, "suspend": True, **spec}}


def patch_of(manager: str, job_name: str = "node", pod: Object | None = None) -> Object:
    template = {
        "spec": {"replicatedJobs": [{"name": job_name, "template": {"spec": {"template": {"spec": pod or {}}}}}]}
    }
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


def set_spec(**values: Any) -> Change:
    """None removes a field."""

    def change(obj: Object) -> None:
        for name, value in values.items():
            obj["spec"].pop(name, None) if value is None else obj["spec"].__setitem__(name, value)

    return change


def _remove_deadline(obj: Object) -> None:
    """And its mirror: what vanishes alone is put back on a cluster."""
    del obj["spec"]["activeDeadlineSeconds"]
    obj["metadata"].get("annotations", {}).pop(DEADLINE_ANNOTATION, None)


def set_annotation(key: str, value: str) -> Change:
    def change(obj: Object) -> None:
        obj["metadata"].setdefault("annotations", {})[key] = value

    return change


def make_policy(**data: str) -> Object:
    meta = {"name": policy.NAME, "namespace": policy.NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _ttl_in_job(made: Object) -> Object:
    made = deepcopy(made)
    made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["ttlSecondsAfterFinished"] = 60
    return made


def _deadline_in_job(made: Object) -> Object:
    made = deepcopy(made)
    made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = 60
    return made


def _without_node(made: Object) -> Object:
    made = deepcopy(made)
    pod = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["name"] = "other"
    return made


_INITIALIZER = {"dataset": {"storageUri": "hf://a/b"}}
_NODE_SELECTOR = {"nodeSelector": {"pool": "a"}}
_ENFORCED = {ENFORCED_ANNOTATION: "true"}
_CLUSTER = runtime(CLUSTER_TRAINING_RUNTIMES, "adm-own")
_OWN = runtime()

CASES: dict[str, Case] = {
    # Creation
    "a good job": Case((job(),)),
    "a misspelt job in an override": Case(
        (job(runtimePatches=[patch_of("a.io/x", "nodes")]),), words="must not have replicated job that doesn't exist"
    ),
    "a misspelt container in an override": Case(
        (job(runtimePatches=[patch_of("a.io/x", pod={"containers": [{"name": "nod"}]})]),), words="it has node"
    ),
    "a misspelt job in an override of 2.1": Case(
        (job(podTemplateOverrides=[{"targetJobs": [{"name": "worker"}]}]),), words="must not have targetJob"
    ),
    "a mount without a volume": Case(
        (
            job(
                podTemplateOverrides=[
                    {
                        "targetJobs": [{"name": "node"}],
                        "spec": {"containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
                    }
                ]
            ),
        ),
        words="no such volume",
    ),
    "a missing cluster runtime": Case((make_trainjob(runtime="nowhere"),), words="must be created before the TrainJob"),
    "a missing runtime": Case((user_of(runtime(name="nowhere")),), words="must be created before the TrainJob"),
    "a runtime made a moment before": Case((_OWN, user_of(_OWN))),
    "an unsupported kind of runtime": Case(
        (make_trainjob() | {"spec": {"runtimeRef": {"name": "a", "kind": "Runtime", "apiGroup": "x.io"}}},),
        words="unsupported runtime",
    ),
    "reserved variables": Case(
        (job(trainer={"env": [{"name": "PET_NPROC_PER_NODE", "value": "1"}]}),), words="reserved envs"
    ),
    "no nodes": Case((job(trainer={"numNodes": 0}),), words="must be greater than or equal to 1"),
    "two TTLs that differ": Case(
        (job(ttlSecondsAfterFinished=5, cleanupPolicy={"ttlSecondsAfterFinished": 6}),), words="must equal"
    ),
    "a TTL in an annotation that is no number": Case(
        (annotate(job(), {TTL_ANNOTATION: "soon"}),), words="whole number"
    ),
    "an initializer that the runtime has not": Case((job(initializer=_INITIALIZER),), words="dataset-initializer job"),
    "the older shapes are warned about": Case((job(labels={"a": "b"}, annotations={"c": "d"}),)),
    "a name that is too long for its Pods": Case(
        (job() | {"metadata": {"name": "a" * 60, "namespace": "default"}},), words="metadata.name"
    ),
    "a longer TTL than the runtime enforces": Case(
        (
            annotate(runtime(name="short", ttlSecondsAfterFinished=60), _ENFORCED),
            user_of(runtime(name="short"), ttlSecondsAfterFinished=120),
        ),
        words="must not be longer than 60",
    ),
    "a priority class that does not exist": Case(
        (
            runtime(
                name="gang",
                podGroupPolicy={"volcano": {}},
                template={
                    "spec": {
                        "replicatedJobs": [
                            {
                                "name": "node",
                                "template": {
                                    "spec": {
                                        "template": {
                                            "spec": {
                                                "priorityClassName": "no-such",
                                                "containers": [{"name": "node", "image": "i"}],
                                            }
                                        }
                                    }
                                },
                            }
                        ]
                    }
                },
            ),
            user_of(runtime(name="gang")),
        ),
        words="doesn't exist",
    ),
    # Times of patches
    "the time of a patch is filled in": Case(
        (job(suspend=True, runtimePatches=[patch_of("a.io/x", pod=_NODE_SELECTOR)]),)
    ),
    # Changes
    "the trainer is removed": Case((job(suspend=True),), set_spec(trainer=None), words="field is immutable"),
    "a trainer is added": Case(
        (make_trainjob() | {"spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True}},),
        set_spec(trainer={"numNodes": 2}),
        words="field is immutable",
    ),
    "the initializer is removed": Case(
        (make_trainjob(runtime="torchtune-llama3.2-1b", suspend=True, trainer={}, initializer=_INITIALIZER),),
        set_spec(initializer=None),
        words="field is immutable",
    ),
    "the deadline is removed": Case(
        (job(suspend=True, activeDeadlineSeconds=60),),
        _remove_deadline,
        words="spec.activeDeadlineSeconds: Invalid value: field is immutable",
    ),
    "the manager is removed and filled in again": Case(
        (job(suspend=True, managedBy="kueue.x-k8s.io/multikueue"),),
        set_spec(managedBy=None),
        words="field is immutable",
    ),
    "patched and resumed in one request": Case(
        (job(suspend=True),),
        set_spec(suspend=False, runtimePatches=[patch_of("kueue.x-k8s.io/manager", pod=_NODE_SELECTOR)]),
    ),
    "patched with a mistake and resumed": Case(
        (job(suspend=True),),
        set_spec(suspend=False, runtimePatches=[patch_of("kueue.x-k8s.io/manager", "nodes")]),
        words="must not have replicated job that doesn't exist",
    ),
    "patched while running": Case(
        (job(),),
        set_spec(runtimePatches=[patch_of("a.io/x", pod=_NODE_SELECTOR)]),
        words="can only be modified when the TrainJob is suspended",
    ),
    "overrides of 2.1 changed while running": Case(
        (job(),),
        set_spec(podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": _NODE_SELECTOR}]),
        words="can only be modified when the TrainJob is suspended",
    ),
    "resumed": Case((job(suspend=True),), set_spec(suspend=False)),
    "a TTL is added": Case((job(),), set_spec(ttlSecondsAfterFinished=100_000)),
    "a deadline in an annotation that is no number": Case(
        (job(),), set_annotation(DEADLINE_ANNOTATION, "0"), words="whole number of seconds from 1"
    ),
    "an annotation of somebody else": Case((job(),), set_annotation("example.com/note", "0")),
    # Runtimes
    "a TTL on two levels of a runtime": Case(
        (_ttl_in_job(runtime(ttlSecondsAfterFinished=5)),), words="two levels would fight"
    ),
    "a deadline on two levels of a cluster runtime": Case(
        (_deadline_in_job(runtime(CLUSTER_TRAINING_RUNTIMES, "adm-two", activeDeadlineSeconds=5)),),
        words="two levels would fight",
    ),
    "a TTL in the template only is warned about": Case((_ttl_in_job(_OWN),)),
    "a runtime without its container": Case((_without_node(_OWN),), words="must contain the required container"),
    "a runtime loses its container": Case(
        (_OWN,), lambda obj: obj.update(spec=_without_node(_OWN)["spec"]), words="must contain the required container"
    ),
    "a runtime that opts out": Case(
        (
            _without_node(_OWN)
            | {
                "metadata": {
                    "name": "own",
                    "namespace": "default",
                    "labels": {"trainer.kubeflow.org/webhook-validation": "disabled"},
                }
            },
        )
    ),
    "an elastic runtime with a number of nodes": Case(
        (runtime(mlPolicy={"numNodes": 2, "torch": {"elasticPolicy": {"maxNodes": 3}}}),),
        words="numNodes should not be set",
    ),
    "a runtime in use": Case((_OWN, user_of(_OWN)), delete=True, words="in use by TrainJob NS/first"),
    "a cluster runtime in use": Case((_CLUSTER, user_of(_CLUSTER)), delete=True, words="in use by TrainJob NS/first"),
    "a runtime in use that may be deleted": Case(
        (annotate(_OWN, {ALLOW_DELETE_IN_USE: "true"}), user_of(_OWN)), delete=True
    ),
    "a derived runtime in use": Case(
        (_OWN | {"metadata": {**_OWN["metadata"], "labels": {DERIVED: "true"}}}, user_of(_OWN)), delete=True
    ),
    "a runtime that nobody uses": Case((_OWN,), delete=True),
    # The policy
    "a key of the policy that does not exist": Case((make_policy(ttlSeconds="5"),), words="Unsupported value"),
    "a policy that contradicts itself": Case(
        (make_policy(jobRetentionPolicy="retain", ttlSecondsAfterFinished="5"),), words="has no meaning with"
    ),
    # Tenants
    "a label of a controller in the job of a tenant": Case(
        (job() | {"metadata": {"name": "first", "namespace": "default", "labels": {MARK: "u"}}},),
        as_tenant=True,
        words="is written by controllers only",
    ),
    "a label of a controller that a tenant adds in a template": Case(
        (_OWN,),
        lambda obj: obj["spec"]["template"].update(metadata={"labels": {MARK: "u"}}),
        as_tenant=True,
        words="is written by controllers only",
    ),
    "a job of a tenant": Case((job(),), as_tenant=True),
}
