"""Responses of `.../series` and `.../usage`: what a job reported and used over time. `services.series` builds them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_HEAD: JsonDict = {"name": "ann-mnist", "namespace": "ann", "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a"}
_TIMES: JsonDict = {"times": [1794772800, 1794772805], "attempts": [0, 0]}


class MetricCurve(BaseModel):
    name: str
    values: list[float | None] = Field(description="One for each of `times`; null: not reported, or not a number.")


class Series(BaseModel):
    """What the program reported (docs/progress.md), with a point for each report, and at most 512."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_HEAD,
                    **_TIMES,
                    "steps": [100, 200],
                    "percents": [10, 20],
                    "metrics": [{"name": "loss", "values": [2.31, None]}],
                }
            ]
        }
    )

    name: str
    namespace: str
    uid: str
    times: list[int] = Field(description="Seconds since 1970, the oldest first.")
    attempts: list[int] = Field(description="Which attempt of the gang reported it.")
    steps: list[float | None] = Field(description="`current_step`: what `step=` was.")
    percents: list[int | None]
    metrics: list[MetricCurve] = Field(description="In the order in which they were reported first.")


class GpuNow(BaseModel):
    index: int
    id: str
    percent: int | None = Field(description="null: the driver does not say it.")
    memory_mib: int | None


class RankNow(BaseModel):
    job: str
    worker: int
    pod: str
    attempt: int
    node: str | None
    cpu: float | None = Field(description="Cores; null: not measured yet, or nothing measures here.")
    cpu_requested: float | None = Field(description="Cores that it requested, or else its limit.")
    memory: int | None = Field(description="Bytes.")
    memory_limit: int | None
    gpu_count: int
    gpus: list[GpuNow] = Field(description="Those leased to it; empty where they are not known by name.")


class RankUsageCurve(BaseModel):
    """Each with one value for each of `times`; null: not measured, or the rank did not run."""

    job: str
    worker: int
    cpu: list[float | None] = Field(description="Cores.")
    memory: list[int | None] = Field(description="Bytes, the most in the time that the point stands for.")
    gpu: list[int | None] = Field(description="Percent, the mean of its GPUs; empty if it has none.")
    gpu_memory: list[int | None] = Field(description="Bytes, of all its GPUs; empty if it has none.")


_NOW: JsonDict = {
    "job": "node",
    "worker": 0,
    "pod": "ann-mnist-node-0-0-x2x2x",
    "attempt": 0,
    "node": "workstation",
    "cpu": 0.98,
    "cpu_requested": 1.0,
    "memory": 314572800,
    "memory_limit": 1073741824,
    "gpu_count": 1,
    "gpus": [{"index": 0, "id": "GPU-8f4c", "percent": 93, "memory_mib": 40960}],
}


class Usage(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_HEAD,
                    "now": [_NOW],
                    **_TIMES,
                    "ranks": [
                        {
                            "job": "node",
                            "worker": 0,
                            "cpu": [0.97, None],
                            "memory": [314572800, None],
                            "gpu": [91, None],
                            "gpu_memory": [42949672960, None],
                        }
                    ],
                }
            ]
        }
    )

    name: str
    namespace: str
    uid: str
    now: list[RankNow] = Field(description="The ranks that run; empty in a record.")
    times: list[int] = Field(description="Seconds since 1970, the oldest first.")
    attempts: list[int]
    ranks: list[RankUsageCurve]
