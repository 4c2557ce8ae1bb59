"""Responses of `/api/v1` about jobs and runtimes (docs/rest.md). `services.job_views` builds their content."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

JobState = Literal["Pending", "Suspended", "Running", "Complete", "Failed"]
_SUMMARY: JsonDict = {
    "name": "ann-mnist",
    "namespace": "ann",
    "kind": "TrainJob",
    "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
    "user": "ann",
    "framework": "pytorch",
    "runtime": "pytorch-simple",
    "state": "Failed",
    "reason": "JobsFailed",
    "message": "node 1 ended with exit code 1",
    "deleting": False,
    "nodes": 2,
    "created_at": "2026-11-15T20:00:00Z",
    "completed_at": "2026-11-15T20:05:00Z",
    "progress": {
        "percent": 40,
        "eta_seconds": 90,
        "metrics": {"loss": "0.31"},
        "updated_at": "2026-11-15T20:01:00Z",
    },
    "stalled": {
        "since": "2026-11-15T20:01:00Z",
        "position": "400",
        "message": "no step has come after step 400 within 300 s; until then one took at most 12 s",
    },
    "labels": {"trainmaster.dev/user": "ann"},
    "requests": {"cpu": 4.0, "nvidia.com/gpu": 2.0},
    "priority": "urgent",
    "rerun_of": "ann-first 0c9d2f6e-6a53-4d0c-8a39-5b1e7f6c2d11",
    "git_commit": "3f7bc166",
    "code_digest": "sha256:9f86d081884c7d65",
}

VERDICT_EXAMPLE: JsonDict = {
    "attempt": 6,
    "job": "node",
    "worker": 1,
    "pod": "ann-mnist-node-0-1-x2x2x",
    "exit_code": 1,
    "signal": "SIGKILL",
    "reason": "Error",
    "error": "ValueError: no data, at train.py:12 in step",
    "last_words": "ValueError: no data",
    "finished_at": "2026-11-15T20:05:00Z",
}


class Progress(BaseModel):
    """What the training code has reported (docs/progress.md)."""

    percent: int | None
    eta_seconds: int | None = Field(description="Seconds until its end, as it estimates; null when it has ended.")
    metrics: dict[str, str]
    updated_at: str | None


class Stall(BaseModel):
    """What stands still (docs/stalls.md)."""

    since: str
    position: str | None = Field(description="The last step that was reported, if any was in this attempt.")
    message: str


class JobSummary(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_SUMMARY]})

    name: str
    namespace: str
    kind: str = Field(description="TrainJob, PyTorchJob, TFJob, ...")
    uid: str
    user: str | None = Field(description="Whose job it is, if it was made through REST.")
    framework: str | None = Field(description="As it was asked for; null for a job of a runtime.")
    runtime: str = Field(description="Empty for a kind without runtimes.")
    state: JobState
    reason: str | None = Field(
        description="Why, in one word for programs: of Pending, Suspended and Failed; `Stalled` of Running."
    )
    message: str | None = Field(description="Why, for people.")
    deleting: bool = Field(description="It was deleted, and its workers are ending.")
    nodes: int | None = Field(description="As it asks for; null leaves it to the runtime.")
    created_at: str
    completed_at: str | None
    progress: Progress | None = Field(description="null while it has reported nothing.")
    stalled: Stall | None = Field(description="null unless it runs and its steps stand still.")
    labels: dict[str, str]
    requests: dict[str, float] | None = Field(
        description="What its workers need together, CPUs in cores, memory in bytes; null leaves it to the runtime."
    )
    priority: str | None = Field(description="The priority class that it names.")
    rerun_of: str | None = Field(description="NAME UID of the job that it repeats.")
    git_commit: str | None = Field(description="Of its code, if `run` has sent it from a repository.")
    code_digest: str | None = Field(description="Of its code, if `run` has sent it.")


class Verdict(BaseModel):
    """The worker that failed first, and how."""

    attempt: int
    job: str | None
    worker: int | None
    pod: str | None
    exit_code: int | None
    signal: str | None
    reason: str | None
    error: str | None = Field(description="Why, in one line: the exception and where it was raised.")
    last_words: str | None = Field(description="The part of what it printed that shows it, usually the end.")
    finished_at: str | None


class WorkerState(BaseModel):
    job: str = Field(description="node, launcher or an initializer; of a v1 job the replica type: master, worker.")
    worker: int
    pod: str
    attempt: int
    state: str = Field(description="Phase of its Pod: Pending, Running, Succeeded, Failed, Unknown.")
    reason: str | None
    message: str | None
    exit_code: int | None
    restarts: int = Field(description="Of its containers within this attempt.")
    node: str | None
    started_at: str | None
    finished_at: str | None


class Term(BaseModel):
    seconds: int
    source: str = Field(description="Who says so: the job, its runtime, or the installation.")


class JobDetail(JobSummary):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_SUMMARY,
                    "attempt": 1,
                    "restarts": 1,
                    "max_restarts": 6,
                    "verdict": VERDICT_EXAMPLE,
                    "workers": [],
                    "started_at": "2026-11-15T20:04:00Z",
                    "deadline": {"seconds": 3600, "source": "TrainJob spec.activeDeadlineSeconds"},
                    "retention": {"seconds": 86400, "source": "installation ConfigMap trainmaster-policy"},
                }
            ]
        }
    )

    attempt: int = Field(description="Which attempt of the whole gang this is, from 0 on.")
    restarts: int = Field(description="How often the whole gang was started again.")
    max_restarts: int | None = Field(description="How often a failure may do that; null before it has begun.")
    verdict: Verdict | None
    workers: list[WorkerState] = Field(description="Of the newest attempt.")
    started_at: str | None = Field(description="When the first of these workers started.")
    deadline: Term | None = Field(description="How long it may be active; null: for ever.")
    retention: Term | None = Field(description="How long it is kept after its end; null: until somebody deletes it.")


class JobAttempt(BaseModel):
    attempt: int = Field(description="From 0 on.")
    began_at: str | None = Field(
        description="When its first worker started, or printed or reported something; null: unknown."
    )
    ended_at: str | None = Field(description="null: it goes on, or unknown.")
    workers: list[WorkerState] = Field(description="`Gone` in `state`: nothing but its log is left.")
    verdict: Verdict | None = Field(description="Why it failed; kept of the newest failure.")
    first_step: float | None = Field(description="The first step it reported: where it went on from a checkpoint.")
    last_step: float | None


class JobAttempts(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ann-mnist",
                    "namespace": "ann",
                    "items": [
                        {
                            "attempt": 0,
                            "began_at": "2026-11-15T20:00:00Z",
                            "ended_at": "2026-11-15T20:04:00Z",
                            "workers": [],
                            "verdict": VERDICT_EXAMPLE,
                            "first_step": 1,
                            "last_step": 400,
                        }
                    ],
                }
            ]
        }
    )

    name: str
    namespace: str
    items: list[JobAttempt] = Field(description="The first one first.")


class Jobs(BaseModel):
    model_config = ConfigDict(
        populate_by_name=True, json_schema_extra={"examples": [{"items": [_SUMMARY], "continue": None}]}
    )

    items: list[JobSummary]
    continue_: str | None = Field(
        default=None, alias="continue", description="Send it as `continue` for the next page; null: this is the last."
    )


class RestartRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}, {"name": "ann-mnist-again"}]})

    name: str | None = Field(
        default=None,
        description="Of the new job, if this one has ended; else one is chosen.",
        json_schema_extra={"pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 44},
    )


class RestartAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ann-mnist", "namespace": "ann", "attempt": 2, "created": False}]}
    )

    name: str = Field(description="The job that runs now: a new one if this one had ended.")
    namespace: str
    attempt: int = Field(description="The attempt that begins.")
    created: bool = Field(description="Whether it is a new job.")


class ReplaceRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"patch": {"spec": {"trainer": {"numNodes": 1}}}}]}
    )

    patch: dict[str, object] = Field(description="A merge patch (RFC 7396) of the job; only of its `spec`.")
    name: str | None = Field(
        default=None,
        description="Of the new job; else one is chosen.",
        json_schema_extra={"pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 44},
    )


class ReplaceAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "ann-mnist-2", "namespace": "ann", "uid": "0c9d2f6e-6a53-4d0c-8a39-5b1e7f6c2d11"}]
        }
    )

    name: str
    namespace: str
    uid: str


class Deleted(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ann-mnist", "namespace": "ann", "message": "the job is deleted"}]}
    )

    name: str
    namespace: str
    message: str


class Change(BaseModel):
    text: str
    how: str = Field(description="The command that does it.")
    patch: dict[str, object] | None = Field(
        default=None,
        description="For POST .../replace: the job with this merge patch would start. null: it has to be done by hand.",
    )


class Explanation(BaseModel):
    """Why it does what it does, as `trainmaster explain` says it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ann-mnist",
                    "namespace": "ann",
                    "state": "Waiting",
                    "reason": "WaitingForResources",
                    "sentence": "it waits for 2 GPUs",
                    "since": "2026-11-15T20:00:00Z",
                    "position": 1,
                    "queue": 3,
                    "ahead": [],
                    "unblock": ["bob/big ends"],
                    "changes": [
                        {
                            "text": "with 1 node instead of 2",
                            "how": "delete it and submit it again with spec.trainer.numNodes: 1",
                            "patch": {"spec": {"trainer": {"numNodes": 1}}},
                        }
                    ],
                    "facts": [],
                    "kind": "TrainJob",
                }
            ]
        }
    )

    name: str
    namespace: str
    state: str
    reason: str
    sentence: str
    since: str
    position: int = Field(description="In the queue, from 1 on; 0: it is not in it, or the caller may not see it.")
    queue: int
    ahead: list[str]
    unblock: list[str] = Field(description="What has to happen, or what to do.")
    changes: list[Change] = Field(description="What would start it now, the smallest change first.")
    facts: list[str]
    kind: str


class Runtime(BaseModel):
    name: str
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"]
    namespace: str | None = Field(description="null: for everybody.")
    framework: str | None
    policy: str | None = Field(description="torch, mpi, jax, xgboost or flux.")
    nodes: int | None
    max_restarts: int


class Runtimes(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {
                            "name": "ours",
                            "kind": "TrainingRuntime",
                            "namespace": "ann",
                            "framework": "torch",
                            "policy": "torch",
                            "nodes": 1,
                            "max_restarts": 6,
                        }
                    ],
                    "frameworks": ["pytorch", "tensorflow"],
                }
            ]
        }
    )

    items: list[Runtime]
    frameworks: list[str] = Field(description="What `framework` of a create may be.")
