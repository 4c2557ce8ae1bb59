"""The error format, for the OpenAPI document. `rest.problems` builds what is sent; a test compares the two."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FieldDetail(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pointer: str | None = Field(default=None, description="JSON pointer to the field of the body that is wrong.")
    parameter: str | None = Field(default=None, description="Name of the parameter that is wrong.")
    detail: str = Field(description="What is wrong with it.")


class ProblemDocument(BaseModel):
    """RFC 9457, with a hint and the fields that are wrong."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:trainmaster:problem:invalid",
                    "title": "The request breaks a rule",
                    "status": 422,
                    "detail": "/config/num_nodes: must be at least 1, not 0",
                    "errors": [{"pointer": "/config/num_nodes", "detail": "must be at least 1, not 0"}],
                    "request_id": "4b1b6ab4-5c1e-4d5e-9a53-0d5a6f1d8f0a",
                }
            ]
        },
    )

    type: str = Field(description="What kind of problem, as a URN; stable, for programs.")
    title: str = Field(description="The kind in words; the same for every problem of this status.")
    status: int = Field(description="The HTTP status again.")
    detail: str = Field(description="What is wrong with this request.")
    hint: str | None = Field(default=None, description="What to do about it.")
    errors: list[FieldDetail] | None = Field(default=None, description="Each field that is wrong.")
    request_id: str | None = Field(default=None, description="Names the request in the server's log.")
