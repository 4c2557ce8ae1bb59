"""Checkpoints of jobs. `services.files.checkpoints` builds the content."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_CHECKPOINT: JsonDict = {
    "name": "step-000400",
    "place": "checkpoints",
    "format": "torch-distributed",
    "step": 400,
    "attempt": 1,
    "bytes": 1536,
    "modified_at": "2026-11-15T20:05:00Z",
    "complete": False,
    "committed": True,
    "problem": "step-000400/__0_0.distcp has 512 bytes and not 1,024",
    "pinned": False,
    "kept": ["newest", "last"],
    "copied_from": "ann-first/step-000200",
    "files": [{"path": "step-000400/.metadata", "bytes": 1024}, {"path": "step-000400/__0_0.distcp", "bytes": 512}],
    "file_count": 2,
}


class CheckpointFileEntry(BaseModel):
    path: str = Field(description="What `path` of the content is.")
    bytes: int


class CheckpointEntry(BaseModel):
    name: str = Field(description="Of one among the outputs it begins with outputs/.")
    place: Literal["checkpoints", "outputs"] = Field(description="Whether it is in TRAINMASTER_CHECKPOINT_DIR.")
    format: Literal["torch", "torch-distributed", "hugging-face", "safetensors", "file", "directory"]
    step: int | None
    attempt: int | None = Field(description="Which attempt wrote it: by its marker, else by its time.")
    bytes: int
    modified_at: str = Field(description="When it was completed, else the time of its newest file.")
    complete: bool = Field(description="As far as can be seen without reading all of it.")
    committed: bool = Field(description="Whether it has a marker: attempts resume only from those.")
    problem: str | None = Field(description="Why it is not complete.")
    pinned: bool
    kept: list[Literal["newest", "resumed", "pinned", "last", "every"]] = Field(
        description="Why no policy removes it: it is the newest complete one, the last attempt resumed from it, it is "
        "pinned, it is one of the last `keep_last`, its step is a multiple of `keep_every`."
    )
    copied_from: str | None = Field(description="UID/NAME of the checkpoint of another job that it is a copy of.")
    files: list[CheckpointFileEntry] = Field(description="Sorted by path, at most 100.")
    file_count: int


class CheckpointEntries(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ann-mnist",
                    "namespace": "ann",
                    "items": [_CHECKPOINT],
                    "count": 1,
                    "bytes": 1536,
                    "keep_last": 3,
                    "keep_every": 1000,
                    "notes": [],
                    "missing": "not on a cluster",
                }
            ]
        }
    )

    name: str
    namespace: str
    items: list[CheckpointEntry] = Field(description="The newest first, at most 500.")
    count: int = Field(description="How many there are in all.")
    bytes: int = Field(description="Of all of them.")
    keep_last: int | None = Field(description="How many of the newest complete ones the job wants to keep; null: all.")
    keep_every: int | None = Field(description="Those with a step that is a multiple of this are kept, too.")
    notes: list[str] = Field(description="Why there may be more than are listed.")
    missing: str | None = Field(description="Why there can be none.")
