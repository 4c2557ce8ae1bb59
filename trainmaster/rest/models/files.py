"""Files of jobs, and tickets to download them. `services.files` builds the content."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_FILE: JsonDict = {
    "path": "workdir/loss.csv",
    "bytes": 2048,
    "modified_at": "2026-11-15T20:05:00Z",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "link": "loss-1.csv",
    "preview": "text",
}
_LIST: JsonDict = {
    "name": "ann-mnist",
    "namespace": "ann",
    "items": [_FILE],
    "count": 1,
    "bytes": 2048,
    "missing": "not on a cluster",
}


class FileEntry(BaseModel):
    path: str = Field(description="What `path` of the content is. Bytes that are no text are written as \\xNN.")
    bytes: int
    modified_at: str | None
    sha256: str | None = Field(description="null: the list would have taken too long.")
    link: str | None = Field(description="The target of a link, which cannot be opened.")
    preview: Literal["text", "png", "jpeg"] | None = Field(description="As what a page may show it, by its name.")


class FileEntries(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_LIST]})

    name: str
    namespace: str
    items: list[FileEntry] = Field(description="Sorted by path, at most 2,000.")
    count: int = Field(description="How many there are in all.")
    bytes: int = Field(description="Of all of them.")
    missing: str | None = Field(description="Why there can be none.")


class CodeEntries(FileEntries):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_LIST,
                    "source": "bundle",
                    "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "git_commit": "3f7bc166",
                    "git_dirty": False,
                }
            ]
        }
    )

    source: Literal["bundle", "config-map", "record"] | None = Field(description="Where the code is.")
    digest: str | None = Field(description="Of its code, if `run` has sent it.")
    git_commit: str | None = Field(description="Of its code, if it was sent from a repository.")
    git_dirty: bool | None = Field(description="Whether it differed from that commit.")


class DownloadRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"job": "ann-mnist", "what": "outputs", "path": "workdir/loss.csv"}]},
    )

    job: str | None = Field(default=None, max_length=253, description="The name of a job; or `record`.")
    record: str | None = Field(default=None, max_length=64, description="The uid of a record.")
    kind: str | None = Field(default=None, max_length=63, description="Of the job, if several have the name.")
    what: Literal["outputs", "code", "checkpoints"]
    path: str = Field(min_length=1, max_length=4096)


class DownloadTicket(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"ticket": "Zx3Vq0mRkC1n2b7T9pLwE4sYdGf8uHoJ5aXiKtQlMzA", "expires_at": "2026-11-15T20:01:00Z"}
            ]
        }
    )

    ticket: str = Field(description="For GET /api/v1/download?ticket=..., once.")
    expires_at: str
