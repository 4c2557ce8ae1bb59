"""The data of server-sent events, for the OpenAPI document; `services` build what is sent, and a test compares them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from trainmaster.rest.models.jobs import JobState, Progress
from trainmaster.rest.models.logs import AddressedLine


class LogEvent(BaseModel):
    """`event: log`"""

    lines: list[AddressedLine] = Field(description="What came together; one or more.")


class MarkEvent(BaseModel):
    """`event: mark`: something that no worker printed."""

    kind: Literal["attempt", "gap", "waiting", "trouble"]
    attempt: int
    text: str


class StateEvent(BaseModel):
    """`event: state`: the job's state has changed, or its progress."""

    state: JobState
    reason: str | None
    message: str | None
    deleting: bool
    progress: Progress | None


class JobEvent(BaseModel):
    """`event: event`: a Kubernetes event about the job or what it is made of."""

    time: str
    type: str = Field(description="Normal or Warning.")
    reason: str
    message: str
    about: str = Field(description="KIND/NAME")
    count: int


class EndEvent(BaseModel):
    """`event: end`: nothing more will come; coming again with its id is answered 204."""

    state: Literal["Pending", "Suspended", "Running", "Complete", "Failed", "Deleted"]
