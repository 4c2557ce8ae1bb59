"""One runtime: what it offers, and who uses it. `services.runtimes` builds the content."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainmaster.rest.models.jobs import JobState, Runtime

_DETAIL: JsonDict = {
    "name": "ours",
    "kind": "TrainingRuntime",
    "namespace": "ann",
    "framework": "torch",
    "policy": "torch",
    "nodes": 1,
    "max_restarts": 6,
    "created_at": "2026-11-15T08:00:00Z",
    "labels": {"trainer.kubeflow.org/framework": "torch"},
    "steps": [{"name": "node", "step": "trainer", "image": "pytorch/pytorch:2.7", "depends_on": []}],
    "users": [
        {
            "namespace": "ann",
            "name": "mnist",
            "kind": "TrainJob",
            "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
            "state": "Running",
            "created_at": "2026-11-15T20:00:00Z",
        }
    ],
    "active": 1,
    "ended": 12,
    "yaml": "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\n",
}


class RuntimeStep(BaseModel):
    name: str = Field(description="Of the replicated job.")
    step: str | None = Field(description="trainer, dataset-initializer or model-initializer; null for others.")
    image: str | None = Field(description="Of its main container, unless a job names another.")
    depends_on: list[str]


class RuntimeUser(BaseModel):
    namespace: str
    name: str
    kind: str
    uid: str
    state: JobState
    created_at: str


class RuntimeDetail(Runtime):
    model_config = ConfigDict(json_schema_extra={"examples": [_DETAIL]})

    created_at: str
    labels: dict[str, str]
    steps: list[RuntimeStep]
    users: list[RuntimeUser] = Field(description="At most 100, those that have not ended first, the newest first.")
    active: int = Field(description="How many jobs that the caller may read use it and have not ended.")
    ended: int = Field(description="How many of them have ended.")
    yaml: str = Field(description="The object, without managedFields.")
