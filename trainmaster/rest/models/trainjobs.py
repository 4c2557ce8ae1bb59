"""Requests and responses of the guide's API (docs/rest.md), with the fields of its clients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.guide_request import CODE_BYTES, GuideRequest

_EXAMPLE_CODE = 'import torch.distributed as dist\n\ndist.init_process_group("gloo")\nprint(dist.get_rank())\n'


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not true or false")
    return value


def _to_text(value: object) -> object:
    """Amounts may also be numbers: 4, 0.5."""
    if isinstance(value, bool):
        raise ValueError("must be an amount, not true or false")
    return str(value) if isinstance(value, int | float) else value


Count = Annotated[int, BeforeValidator(_refuse_bool)]
Amount = Annotated[str, BeforeValidator(_to_text, json_schema_input_type=str | int | float)]


class JobConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    num_nodes: Count = Field(default=1, ge=1, le=100_000, description="Nodes, each with one process.")
    gpu_per_node: Count = Field(default=0, ge=0, le=1024, description="GPUs of each node; 0 for none.")
    cpu_per_node: Amount | None = Field(default=None, description="CPUs of each node: 4, 500m.")
    memory_per_node: Amount | None = Field(default=None, description="Memory of each node: 16Gi, 512Mi.")


class CreateRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "user_id": "alice",
                    "namespace": "default",
                    "framework": "pytorch",
                    "training_code": _EXAMPLE_CODE,
                    "config": {"num_nodes": 2, "gpu_per_node": 0, "cpu_per_node": "1", "memory_per_node": "2Gi"},
                }
            ]
        },
    )

    # Limits are only in the document: `services.guide_request` reports all mistakes together, with the rule.
    user_id: str = Field(
        description="Whose job it is; its name begins with it. A DNS label that begins with a letter.",
        json_schema_extra={"pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": naming.USER_LENGTH},
    )
    namespace: str = Field(
        description="The user's namespace, where everything is made.",
        json_schema_extra={"pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63},
    )
    framework: str = Field(description="pytorch, tensorflow, or one that an administrator has added.")
    training_code: str = Field(
        description="The text of train.py: a Python program.",
        json_schema_extra={"minLength": 1, "maxLength": CODE_BYTES},
    )
    config: JobConfig = Field(default_factory=JobConfig, description="Nodes, and what each of them needs.")

    def to_request(self) -> GuideRequest:
        config = self.config
        return GuideRequest(
            user_id=self.user_id,
            namespace=self.namespace,
            framework=self.framework,
            code=self.training_code,
            num_nodes=config.num_nodes,
            gpu_per_node=config.gpu_per_node,
            cpu_per_node=config.cpu_per_node,
            memory_per_node=config.memory_per_node,
        )


class CreateAnswer(BaseModel):
    status: Literal["success"] = "success"
    trainjob_name: str = Field(description="The job's name for all other calls.")
    namespace: str
    created_at: str = Field(description="RFC 3339, UTC.")


class StatusAnswer(BaseModel):
    trainjob_name: str
    state: Literal["Running", "Complete", "Failed"] = Field(description="What has not ended is Running.")
    message: str = Field(description="What it does or why it ended; Pending and Suspended with the reason.")
    created_at: str
    completed_at: str | None = Field(default=None, description="When it ended; null before.")


class LogsAnswer(BaseModel):
    trainjob_name: str
    worker: int
    logs: str = Field(description="What the worker printed in its newest attempt, both streams.")


class DeleteAnswer(BaseModel):
    status: Literal["success"] = "success"
    trainjob_name: str
    namespace: str
    message: str = Field(description="What was deleted and what stays.")
