"""Request and response of creating a job in `/api/v1` (docs/rest.md)."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.jobs.compose.request import CLAIM, RequestedMount
from trainmaster.rest.models.trainjobs import Count, JobConfig
from trainmaster.rest.openapi import Responses
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.creation.code import ENTRY, CodeTree, build_tree, read_archive
from trainmaster.rest.services.creation.guide_request import GuideRequest
from trainmaster.rest.services.creation.new_job_request import NewJobRequest

_LONGEST = 2**31 - 1
_CODE = 'import torch.distributed as dist\n\ndist.init_process_group("gloo")\nprint(dist.get_rank())\n'


class VolumeModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim: str = Field(description="A PersistentVolumeClaim of the namespace: a dataset, a place for results.")
    mount_path: str = Field(description="Where workers find it.")
    read_only: bool = False


class NewJob(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"framework": "pytorch", "code": _CODE, "config": {"num_nodes": 2, "cpu_per_node": "1"}},
                {
                    "name": "ann-mnist",
                    "runtime": "torch-distributed",
                    "files": {"train.py": "import model\n", "model.py": "print('a model')\n"},
                    "packages": ["tqdm"],
                    "env": {"EPOCHS": "3"},
                    "volumes": [{"claim": "mnist", "mount_path": "/data", "read_only": True}],
                    "ttl_seconds": 86400,
                    "deadline_seconds": 3600,
                },
            ]
        },
    )

    # Limits are only in the document: `services.new_job_request` reports all mistakes together, with the rule.
    name: str | None = Field(
        default=None,
        description="Default: made of the user and the time, or of the Idempotency-Key.",
        json_schema_extra={"pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 44},
    )
    namespace: str | None = Field(default=None, description="Default: the caller's own.")
    user: str | None = Field(default=None, description="Whose job it is. Default: the caller.")
    framework: str | None = Field(default=None, description="pytorch, tensorflow, or one that administrators added.")
    runtime: str | None = Field(default=None, description="In place of a framework: any runtime.")
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = "ClusterTrainingRuntime"
    code: str | None = Field(default=None, description="The text of train.py.")
    files: dict[str, str] | None = Field(default=None, description="Several files: path to text.")
    archive: str | None = Field(default=None, description="A tar.gz or zip, in base64.")
    entrypoint: str = Field(default=ENTRY, description="The file that every worker runs.")
    command: list[str] = Field(default=[], max_length=200, description="With a runtime: in place of the entrypoint.")
    arguments: list[str] = Field(default=[], max_length=500, description="With a runtime: what follows the program.")
    processes_per_node: Count | None = Field(
        default=None, ge=1, le=1024, description="With a runtime: processes that each node starts."
    )
    queue: str | None = Field(default=None, max_length=253, description="On a cluster with Kueue: the queue.")
    packages: list[str] = Field(default=[], max_length=100, description="Requirements that are installed besides.")
    env: dict[str, str] = Field(default={}, max_length=500, description="Variables of every worker.")
    volumes: list[VolumeModel] = Field(default=[], max_length=50, description="Datasets and other claims.")
    labels: dict[str, str] = Field(default={}, max_length=50, description="To find it again.")
    config: JobConfig = Field(default_factory=JobConfig, description="Nodes, and what each of them needs.")
    ttl_seconds: Count | None = Field(default=None, ge=0, le=_LONGEST, description="Kept so long after its end.")
    deadline_seconds: Count | None = Field(default=None, ge=1, le=_LONGEST, description="Active so long at most.")
    suspended: bool = Field(default=False, description="Do not start it before it is resumed.")
    resume_from: str | None = Field(
        default=None,
        max_length=1024,
        pattern="^[A-Za-z0-9-]{1,64}/.+$",
        description="On a home: UID/NAME of a checkpoint of another job of the namespace, to begin with.",
    )
    keep_checkpoints: Count | None = Field(
        default=None, ge=1, le=_LONGEST, description="On a home: how many of the newest complete checkpoints are kept."
    )

    @property
    def _code_pointer(self) -> str:
        return "/files" if self.files is not None else "/archive" if self.archive is not None else "/code"

    async def to_request(self, namespace: str, user: str, raw: bytes = b"") -> NewJobRequest:
        """`raw` is an archive sent as the body."""
        config = self.config
        tree: CodeTree | None = None
        code_problems: Sequence[FieldProblem] = ()
        try:
            tree = await self._read_tree(raw)
        except Problem as problem:
            code_problems = problem.errors
        basics = GuideRequest(
            user_id=user,
            namespace=namespace,
            framework=self.framework or "",
            code="",
            num_nodes=config.num_nodes,
            gpu_per_node=config.gpu_per_node,
            cpu_per_node=config.cpu_per_node,
            memory_per_node=config.memory_per_node,
        )
        return NewJobRequest(
            basics=basics,
            name=self.name,
            runtime=self.runtime or "",
            runtime_kind=self.runtime_kind,
            tree=tree,
            code_pointer="/archive" if raw else self._code_pointer,
            code_problems=code_problems,
            command=tuple(self.command),
            arguments=tuple(self.arguments),
            processes=self.processes_per_node,
            queue=self.queue or "",
            packages=tuple(self.packages),
            env=self.env,
            mounts=tuple(
                RequestedMount(CLAIM, one.claim, one.mount_path.rstrip("/"), one.read_only) for one in self.volumes
            ),
            labels=self.labels,
            ttl_seconds=self.ttl_seconds,
            deadline_seconds=self.deadline_seconds,
            suspended=self.suspended,
            resume_from=self.resume_from or "",
            keep_checkpoints=self.keep_checkpoints,
        )

    async def _read_tree(self, raw: bytes) -> CodeTree | None:
        """Raises Problem 422."""
        given = [name for name in ("code", "files", "archive") if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid([FieldProblem(f"{' and '.join(given)} do not go together", pointer=f"/{given[1]}")])
        if self.code is not None:
            return build_tree({self.entrypoint: _to_bytes(self.code, "/code")}, self.entrypoint, "/code")
        if self.files is not None:
            files = {path: _to_bytes(text, "/files") for path, text in self.files.items()}
            return build_tree(files, self.entrypoint, "/files")
        if self.archive is not None:
            try:
                raw = base64.b64decode(self.archive, validate=True)
            except (binascii.Error, ValueError):
                raise invalid([FieldProblem("is not base64", pointer="/archive")]) from None
        if not raw:
            return None
        return await asyncio.to_thread(read_archive, raw, self.entrypoint, "/archive")


def _to_bytes(text: str, pointer: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        why = f"is not UTF-8 at character {error.start}: it has half of a surrogate pair"
        raise invalid([FieldProblem(why, pointer=pointer)]) from None


class ArchiveQuery(BaseModel):
    """The parameters of a create whose body is the archive."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(default=None, max_length=63)
    namespace: str | None = Field(default=None, max_length=63, description="Default: the caller's own.")
    framework: str | None = Field(default=None, max_length=63)
    runtime: str | None = Field(default=None, max_length=253)
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = "ClusterTrainingRuntime"
    entrypoint: str = Field(default=ENTRY, max_length=500)
    num_nodes: int = Field(default=1, ge=1, le=100_000)
    gpu_per_node: int = Field(default=0, ge=0, le=1024)
    cpu_per_node: str | None = Field(default=None, max_length=40)
    memory_per_node: str | None = Field(default=None, max_length=40)
    ttl_seconds: int | None = Field(default=None, ge=0, le=_LONGEST)
    deadline_seconds: int | None = Field(default=None, ge=1, le=_LONGEST)
    suspended: bool = False
    arguments: list[str] = Field(default=[], max_length=500, description="With a runtime: what follows the program.")
    processes_per_node: int | None = Field(default=None, ge=1, le=1024, description="With a runtime.")
    queue: str | None = Field(default=None, max_length=253, description="On a cluster with Kueue: the queue.")
    env: list[str] = Field(default=[], max_length=500, description="Variables, each NAME=VALUE.")

    def to_job(self) -> NewJob:
        data = self.model_dump()
        config = {name: data.pop(name) for name in JobConfig.model_fields}
        data["env"] = dict(one.partition("=")[::2] for one in data["env"])
        return NewJob.model_validate({**data, "config": config})


class JobCreated(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "ann-job-20261115200000",
                    "namespace": "ann",
                    "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
                    "created_at": "2026-11-15T20:00:00Z",
                }
            ]
        }
    )

    name: str
    namespace: str
    uid: str
    created_at: str


CREATED: Responses = {
    201: {
        "description": "It is made, or was by an earlier request with this Idempotency-Key.",
        "headers": {
            "location": {"description": "Where to read it.", "schema": {"type": "string"}},
            "idempotency-replayed": {"description": "true: by an earlier request.", "schema": {"type": "string"}},
        },
    }
}
