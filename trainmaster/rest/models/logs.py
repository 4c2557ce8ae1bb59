"""Responses of `.../logs/window` and `.../logs/search` (docs/rest.md, "Reading logs")."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainmaster.rest.models.history import LogLine

_LINE: JsonDict = {
    "attempt": 0,
    "job": "node",
    "worker": 0,
    "container": "node",
    "time": "2026-11-15T20:00:01.000000000Z",
    "same": 0,
    "text": "loss 0.31",
}
_HEAD: JsonDict = {"name": "ann-mnist", "namespace": "ann"}


class AddressedLine(LogLine):
    same: int = Field(description="How many lines of the worker have the same time and stand before it.")


class LogWindow(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_HEAD,
                    "lines": [_LINE],
                    "before": 1,
                    "begin": "0~node~0~2026-11-15T20:00:01.000000000Z~0",
                    "end": "0~node~0~2026-11-15T20:00:01.000000000Z~1",
                    "begin_share": 0.25,
                    "end_share": 1.0,
                    "is_first": False,
                    "is_last": True,
                    "bytes": 65536,
                }
            ]
        }
    )

    name: str
    namespace: str
    lines: list[AddressedLine] = Field(description="All workers merged by time, attempt after attempt.")
    before: int = Field(description="How many of these lines stand before the place that was asked for.")
    begin: str = Field(description="The place before these lines, for `at`.")
    end: str = Field(description="The place after them.")
    begin_share: float = Field(description="The share of all bytes that stands before these lines.")
    end_share: float
    is_first: bool = Field(description="Nothing stands before these lines.")
    is_last: bool = Field(description="Nothing stands after them yet.")
    bytes: int = Field(description="About how long all of it is.")


class LogHits(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{**_HEAD, "hits": [_LINE], "stopped": "hits"}]})

    name: str
    namespace: str
    hits: list[AddressedLine] = Field(description="At most 400 characters of each line, around what was found.")
    stopped: Literal["hits", "time"] | None = Field(
        description="Why not everything was searched: 10,000 hits, or 5 seconds."
    )
