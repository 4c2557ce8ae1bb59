"""Manifests of jobs: checked, sent, and read back. `Backend.tools.check` and `services.creation` build the content."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainmaster.rest.models.creating import NewJob
from trainmaster.rest.models.problems import FieldDetail

_YAML = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: ann-mnist
  namespace: ann
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    numNodes: 2
    command: [torchrun, /workspace/scripts/train.py]
"""
MANIFEST_EXAMPLE = _YAML
_CHECKED: JsonDict = {
    "source": "manifests",
    "line": 1,
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "namespace": "ann",
    "name": "ann-mnist",
    "ok": False,
    "fields": [{"path": "spec.trainer.numNodes", "line": 9, "class": "approximated", "note": "images are not pulled"}],
    "errors": [{"path": "spec.trainer.nodes", "line": 10, "column": 5, "text": 'unknown field "spec.trainer.nodes"'}],
    "warnings": [],
    "start": {"state": "later", "text": "waiting for 2 GPUs", "asked": "asked the scheduler of this server"},
}


class ManifestsText(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"manifests": _YAML}]})

    manifests: str = Field(description="YAML or JSON; several documents are separated by ---.")


class CheckRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"manifests": _YAML}, {"job": {"framework": "pytorch", "code": "print(1)\n"}}]},
    )

    manifests: str | None = Field(default=None, description="YAML or JSON; several documents are separated by ---.")
    job: NewJob | None = Field(default=None, description="Instead: the body of POST /api/v1/jobs.")


class CheckedField(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    path: str
    line: int
    class_: str = Field(alias="class", description="honoured, approximated, refused or inert on this machine.")
    note: str | None


class CheckError(BaseModel):
    path: str = Field(description="Of the field; empty if it is none.")
    line: int
    column: int | None
    text: str


class PredictedStart(BaseModel):
    state: str = Field(description="now, later or never.")
    text: str
    asked: str = Field(description="Who says so.")


class CheckedObject(BaseModel):
    """What `trainmaster check -o json` says about one document."""

    source: str
    line: int
    apiVersion: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    ok: bool
    fields: list[CheckedField]
    errors: list[CheckError]
    warnings: list[str]
    start: PredictedStart | None = Field(description="null: not asked for, or nothing that starts.")


class CheckAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ok": False, "items": [_CHECKED], "problems": [], "manifests": _YAML}]}
    )

    ok: bool = Field(description="Nothing is wrong.")
    items: list[CheckedObject] = Field(description="One for each document.")
    problems: list[FieldDetail] = Field(description="Of `job`: its invalid fields.")
    manifests: str | None = Field(description="Of `job`: what it would create, as YAML; null if it is too large.")


class SentObject(BaseModel):
    kind: str
    namespace: str | None
    name: str
    uid: str | None = Field(description="null in a dry run.")
    done: str = Field(description="created, changed or unchanged; in a dry run what would be done.")


class SubmissionAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "dry_run": False,
                    "items": [
                        {
                            "kind": "TrainJob",
                            "namespace": "ann",
                            "name": "ann-mnist",
                            "uid": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
                            "done": "created",
                        }
                    ],
                }
            ]
        }
    )

    dry_run: bool
    items: list[SentObject] = Field(description="In the order in which they were sent.")
