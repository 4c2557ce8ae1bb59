"""Settings and what the doctor finds: about the host for administrators, about a job for whoever may read it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_SETTING: JsonDict = {"key": "node.pods", "value": 200, "default": 1000, "source": "file /srv/trainmaster/config.toml"}
_FINDING: JsonDict = {
    "check": "disk",
    "state": "problem",
    "seen": "1.4 GiB free of 200.0 GiB at /srv/trainmaster",
    "advice": "free some, or choose another home with --home",
}
_JOB_FINDING: JsonDict = {
    "check": "ttl",
    "state": "note",
    "seen": "Complete, and kept until somebody deletes it: nobody set a TTL",
    "fix": "kubectl annotate trainjob mnist -n ann trainmaster.dev/ttl-seconds-after-finished=3600",
}

SettingContent = bool | int | float | str | list[str]


class SettingAnswer(BaseModel):
    key: str = Field(description="GROUP.NAME, as in the settings file.")
    value: SettingContent
    default: SettingContent
    source: str = Field(description="default, or the file, the variable of the environment or the flag that set it.")


class SettingsAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_SETTING]}]})

    items: list[SettingAnswer] = Field(description="On a cluster those of the REST API.")


class DoctorFinding(BaseModel):
    check: str
    state: Literal["ok", "note", "problem"]
    seen: str
    advice: str = Field(description="What to do; empty if there is nothing to do.")


class DoctorAnswer(BaseModel):
    """As `trainmaster doctor -o json` says it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"healthy": False, "checks": [_FINDING]}]})

    healthy: bool = Field(description="There is no problem.")
    checks: list[DoctorFinding]


class JobFinding(BaseModel):
    check: str
    state: Literal["note", "problem"] = Field(description="problem: it keeps something from working.")
    seen: str
    fix: str = Field(description="A command, or what to do where no command helps; empty if there is nothing to do.")


class JobDoctorAnswer(BaseModel):
    """As `trainmaster doctor trainjob NAME -o json` says it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "mnist", "namespace": "ann", "kind": "TrainJob", "findings": [_JOB_FINDING]}]
        }
    )

    name: str
    namespace: str
    kind: str
    findings: list[JobFinding] = Field(description="Empty: nothing is wrong.")
