"""Nodes, their GPUs, and the queue. `Backend.nodes` and `Backend.queue` build their content."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_NODE: JsonDict = {
    "name": "workstation",
    "ready": True,
    "cordoned": True,
    "drain": {"since": "2026-11-15T20:00:00Z", "by": "ann", "reason": "new kernel", "ends_with_start": False},
    "created_at": "2026-11-15T08:00:00Z",
    "labels": {"kubernetes.io/arch": "amd64"},
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "it is", "since": "2026-11-15T08:00:01Z"}
    ],
    "resources": [{"name": "cpu", "capacity": 16, "allocatable": 16, "taken": 8.5}],
    "gpus": [
        {
            "index": 0,
            "id": "GPU-8f4c",
            "product": "NVIDIA H200",
            "memory_mib": 143771,
            "state": "leased",
            "reason": "XID 79: it has fallen off the bus",
            "job": "ann/mnist",
        }
    ],
    "jobs": [
        {
            "namespace": "ann",
            "name": "mnist",
            "kind": "TrainJob",
            "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
            "pods": 2,
            "requests": {"cpu": 8, "nvidia.com/gpu": 1},
        }
    ],
}
_STOPPING: JsonDict = {"namespace": "ann", "name": "mnist", "kind": "TrainJob", "uid": "4b1b6ab4", "pods": 2}
_DRAINING: JsonDict = {
    "drain": _NODE["drain"],
    "complete": False,
    "stopping": [_STOPPING],
    "suspended": [_STOPPING],
}
_WAITING: JsonDict = {
    "position": 1,
    "namespace": "ann",
    "name": "mnist",
    "kind": "TrainJob",
    "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
    "reason": "WaitingForResources",
    "sentence": "waiting for 2 GPUs: 1 of 2 free; first in the queue; starts when bob/large ends",
    "since": "2026-11-15T20:00:00Z",
    "priority": 0,
    "requests": {"nvidia.com/gpu": 2},
}


class NodeCondition(BaseModel):
    type: str
    status: str
    reason: str | None
    message: str | None
    since: str | None


class NodeResource(BaseModel):
    name: str
    capacity: float = Field(description="CPUs in cores, memory in bytes, others as numbers.")
    allocatable: float = Field(description="The part that Pods may request.")
    taken: float | None = Field(description="Requested by Pods on it; null if the caller may not list all Pods.")


class Gpu(BaseModel):
    index: int
    id: str
    product: str | None
    memory_mib: int | None
    state: Literal["free", "leased", "held", "unhealthy", "unknown"] = Field(
        description="held: by a process without a lease. unknown: the caller may not list all Pods."
    )
    reason: str | None = Field(description="Why it is held or unhealthy.")
    job: str | None = Field(description="NAMESPACE/NAME of the job that has leased it.")


class NodeJob(BaseModel):
    namespace: str
    name: str
    kind: str | None = Field(description="null: Pods of no training job.")
    uid: str | None
    pods: int = Field(description="Of it, on this node.")
    requests: dict[str, float] = Field(description="Of these Pods together.")


class NodeDrain(BaseModel):
    since: str
    by: str | None
    reason: str | None
    ends_with_start: bool = Field(description="The machine shuts down: the next start of the server ends the drain.")


class NodeDetail(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_NODE]})

    name: str
    ready: bool
    cordoned: bool = Field(description="It takes no new Pods.")
    drain: NodeDrain | None = Field(description="Jobs are suspended, and nothing starts; null: it is not drained.")
    created_at: str
    labels: dict[str, str]
    conditions: list[NodeCondition]
    resources: list[NodeResource]
    gpus: list[Gpu]
    jobs: list[NodeJob] | None = Field(description="What runs there; null if the caller may not list all Pods.")


class Nodes(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_NODE]}]})

    items: list[NodeDetail]


class DrainRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "new kernel"}]})

    reason: str = Field(default="", max_length=500, description="Shown to everybody whose job waits.")


class DrainedJob(BaseModel):
    namespace: str
    name: str
    kind: str = Field(description="Pod: it belongs to no job, so it cannot be suspended.")
    uid: str
    pods: int = Field(description="Of it, that may still have processes.")


class DrainAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_DRAINING]})

    drain: NodeDrain | None
    complete: bool = Field(description="It is drained, and nothing runs any more.")
    stopping: list[DrainedJob] = Field(description="What still runs.")
    suspended: list[DrainedJob] = Field(description="What the drain has suspended; its end resumes it.")


class QueuedJob(BaseModel):
    position: int | None = Field(description="From 1 on; null: it waits for something else than its turn, or unknown.")
    namespace: str
    name: str
    kind: str | None = Field(description="null: a Pod or Job of no training job.")
    uid: str | None
    reason: str | None
    sentence: str = Field(description="Why it waits, for people.")
    since: str | None
    priority: int | None
    requests: dict[str, float] = Field(description="What it needs in addition to what it holds; CPUs in cores.")


class Queue(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"whole": True, "items": [_WAITING]}]})

    whole: bool = Field(description="It has the jobs of everybody; otherwise only those that the caller may read.")
    items: list[QueuedJob] = Field(description="In the order in which they will start.")
