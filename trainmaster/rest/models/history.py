"""Responses of `/api/v1/history`: records of finished and deleted jobs (docs/history.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainmaster.rest.models.jobs import VERDICT_EXAMPLE, Verdict, WorkerState

_RECORD: JsonDict = {
    "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
    "name": "ann-mnist",
    "namespace": "ann",
    "kind": "TrainJob",
    "runtime": "pytorch-simple",
    "state": "Complete",
    "created_at": "2026-11-15T20:00:00Z",
    "completed_at": "2026-11-15T20:05:00Z",
    "deleted_at": "2026-11-15T21:00:00Z",
    "deleted_by": "system:serviceaccount:ann:tenant",
    "user": "ann",
    "nodes": 2,
    "labels": {"team": "nlp"},
    "metrics": {"loss": "0.31"},
}


class RecordQuery(BaseModel):
    """Which records are asked for."""

    namespace: str | None = Field(
        default=None,
        description="Default: all in which the caller may read jobs.",
        min_length=1,
        max_length=63,
        examples=["ann"],
    )
    name: str = Field(default="", max_length=253)
    state: Literal["Complete", "Failed", "Deleted"] | None = None
    deleted: bool | None = Field(default=None, description="true: only those whose job is gone.")
    q: str = Field(
        default="", description="Words that all occur in namespace, name, runtime, user or labels.", max_length=200
    )
    runtime: str = Field(default="", max_length=253)
    user: str = Field(default="", description="Whose jobs, if they were made through REST.", max_length=63)
    since: str = Field(default="", description="Only those that ended at this time or later (RFC 3339).", max_length=40)
    until: str = Field(default="", description="Only those that ended before this time.", max_length=40)
    limit: int = Field(default=100, description="Most records of one page.", ge=1, le=500)
    continue_: str = Field(default="", alias="continue", description="`continue` of the page before.", max_length=4096)


class RecordSummary(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_RECORD]})

    uid: str
    name: str
    namespace: str
    kind: str
    runtime: str
    state: Literal["Complete", "Failed", "Deleted"] = Field(description="Deleted: before its end.")
    created_at: str
    completed_at: str | None
    deleted_at: str | None = Field(description="null while the job itself is still there.")
    deleted_by: str | None
    user: str | None = Field(description="Whose job it was, if it was made through REST.")
    nodes: int | None = Field(description="As it asked for; null left it to the runtime.")
    labels: dict[str, str]
    metrics: dict[str, str] = Field(description="The last ones that it reported.")


class RecordDeleted(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"uid": _RECORD["uid"], "name": "ann-mnist", "namespace": "ann"}]}
    )

    uid: str
    name: str
    namespace: str


class RecordLog(BaseModel):
    attempt: int
    job: str
    worker: int
    container: str
    restart: int
    bytes: int


class RecordEvent(BaseModel):
    time: str
    reason: str
    about: str
    message: str
    count: int


class RecordDetail(RecordSummary):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_RECORD,
                    "message": "jobset completed successfully",
                    "verdict": {**VERDICT_EXAMPLE, "attempt": 0},
                    "workers": [],
                    "events": [],
                    "logs": [],
                    "gaps": [],
                }
            ]
        }
    )

    message: str | None
    verdict: Verdict | None
    workers: list[WorkerState]
    events: list[RecordEvent]
    logs: list[RecordLog] = Field(description="What GET .../logs can answer from.")
    gaps: list[str] = Field(description="What could not be kept, in words.")


class Records(BaseModel):
    model_config = ConfigDict(
        populate_by_name=True, json_schema_extra={"examples": [{"items": [_RECORD], "continue": None}]}
    )

    items: list[RecordSummary] = Field(description="The newest first, by their end.")
    continue_: str | None = Field(default=None, alias="continue", description="For the next page; null: the last.")


class LogLine(BaseModel):
    attempt: int
    job: str
    worker: int
    container: str
    time: str = Field(description="RFC 3339 with nanoseconds; empty when nobody knows.")
    text: str


class LogLines(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ann-mnist",
                    "namespace": "ann",
                    "lines": [
                        {
                            "attempt": 0,
                            "job": "node",
                            "worker": 0,
                            "container": "node",
                            "time": "2026-11-15T20:00:01.000000000Z",
                            "text": "loss 0.31",
                        }
                    ],
                    "truncated": False,
                }
            ]
        }
    )

    name: str
    namespace: str
    lines: list[LogLine] = Field(description="All workers merged by time, attempt after attempt.")
    truncated: bool = Field(description="The beginning is left out.")
