"""Responses of `.../evidence`: what the ranks of a job were doing (docs/evidence.md). `history.evidence` keeps it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_PROCESS: JsonDict = {
    "pid": 7,
    "parent": 1,
    "name": "python",
    "command": "python train.py",
    "state": "S",
    "waits_in": "hrtimer_nanosleep",
    "threads": 3,
    "states": {"S": 3},
    "cpu_seconds": 81.4,
    "cpu_percent": 0,
    "switches": 1,
    "rss": 512000000,
    "source": "py-spy",
    "stacks": [
        {"name": "MainThread", "tid": 7, "frames": [{"function": "load_batch", "file": "/code/data.py", "line": 41}]}
    ],
}
_RANK: JsonDict = {
    "job": "node",
    "job_index": 0,
    "worker": 3,
    "pod": "mnist-node-0-3-x4k2p",
    "container": "node",
    "lines": ["step 812"],
    "memory": {"used": 1200000000, "peak": 1300000000, "limit": 16000000000, "oom_kills": 0},
    "gpus": [],
    "processes": [_PROCESS],
}


class EvidenceFrame(BaseModel):
    function: str
    file: str
    line: int = Field(description="0: unknown.")


class EvidenceThread(BaseModel):
    name: str = Field(description="Empty: the program gave it none.")
    tid: int = Field(description="0: unknown.")
    active: bool | None = Field(default=None, description="It runs, rather than waits; null: unknown.")
    gil: bool | None = Field(default=None, description="It holds Python's interpreter lock; null: unknown.")
    state: str = Field(default="", description="One letter, as in ps.")
    waits_in: str = Field(default="", description="The function of the kernel in which it waits.")
    frames: list[EvidenceFrame] = Field(description="The innermost first.")
    frames_left_out: int = Field(default=0, description="Between the last two.")


class EvidenceProcess(BaseModel):
    pid: int = Field(description="As the container sees it.")
    parent: int
    name: str
    command: str
    state: str = Field(description="Of its main thread: R runs, S sleeps, D waits for the disk, T is stopped.")
    waits_in: str
    threads: int
    states: dict[str, int] = Field(description="How many of its threads are in which state.")
    cpu_seconds: float = Field(description="Since it began.")
    cpu_percent: int = Field(description="Of one CPU, while it was looked at.")
    switches: int = Field(description="How often it gave up the CPU itself meanwhile.")
    rss: int = Field(description="Bytes.")
    source: str | None = Field(default=None, description="py-spy or faulthandler; null: not a Python process.")
    error: str = Field(default="", description="Why there are no stacks.")
    stacks: list[EvidenceThread] = []
    threads_left_out: int = 0


class EvidenceMemory(BaseModel):
    """Bytes; null: unknown."""

    used: int | None
    peak: int | None
    limit: int | None = Field(description="null: none.")
    oom_kills: int | None = Field(description="Processes that the kernel killed because the memory was used up.")


class EvidenceGpu(BaseModel):
    index: int
    id: str
    percent: int | None
    memory_mib: int | None


class EvidenceCollective(BaseModel):
    """The oldest collective of torch that was open, from its flight recorder."""

    name: str = ""
    sequence: int = 0
    state: str = ""
    group: str = ""
    sizes: str = ""
    note: str = Field(default="", description="Why it is not known.")


class EvidenceEnd(BaseModel):
    at: str | None
    code: int
    signal: int | None
    oom_killed: bool
    largest_process: int | None = Field(description="Bytes.")
    message: str


class RankEvidence(BaseModel):
    job: str
    job_index: int
    worker: int
    pod: str
    container: str
    error: str = Field(default="", description="Why its processes could not be examined.")
    lines: list[str] = Field(description="The last ones that it printed.")
    memory: EvidenceMemory
    gpus: list[EvidenceGpu]
    processes: list[EvidenceProcess]
    processes_left_out: int = 0
    collective: EvidenceCollective | None = None
    end: EvidenceEnd | None = Field(default=None, description="null: it had not failed.")


class Evidence(BaseModel):
    """As `trainmaster evidence JOB -o json` says it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "mnist",
                    "namespace": "ann",
                    "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
                    "attempt": 0,
                    "attempts": [0],
                    "reason": "DeadlineExceeded",
                    "at": "2026-11-19T02:20:13Z",
                    "seconds": 0.4,
                    "ranks": [_RANK],
                }
            ]
        }
    )

    name: str
    namespace: str
    uid: str
    attempt: int
    attempts: list[int] = Field(description="Those of which there is evidence.")
    reason: Literal["Requested", "DeadlineExceeded", "Stalled", "Failed"]
    at: str
    seconds: float | None = Field(default=None, description="How long it took.")
    ranks: list[RankEvidence]
