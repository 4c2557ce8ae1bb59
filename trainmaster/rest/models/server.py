"""What a client learns about this server, and where it may look."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Server(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": "0.1.0",
                    "mode": "home",
                    "name": "workstation",
                    "time": "2026-11-15T20:00:00Z",
                    "read_only": False,
                    "abilities": ["history", "nodes", "queue"],
                }
            ]
        }
    )

    version: str
    mode: Literal["home", "cluster"]
    name: str = Field(description="Of the machine, or of the cluster's address.")
    time: str = Field(description="The server's clock, for ages.")
    read_only: bool = Field(description="Requests that change something are refused.")
    abilities: list[str] = Field(description="What this server has beyond jobs, logs and events.")


class Namespaces(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"items": ["ann"]}]})

    items: list[str] = Field(description="In which the caller may read TrainJobs.")
