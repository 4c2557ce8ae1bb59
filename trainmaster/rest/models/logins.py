"""Requests and answers about logins of the dashboard (docs/dashboard.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from trainmaster.rest.logins.requests import find_path_problem

_ASKED: JsonDict = {"link": "GXpV2f8tqXv6yqC5ZC0DqfQkD9dmQe0uX0a2i2S6wXk", "path": "/", "read_only": False}
_LOGIN: JsonDict = {
    "key": "J4rF1xX0m0T3iLZq9m0b5y9Qh3tqkH8mYV3v6n0g8aE",
    "user": "system:serviceaccount:ann:tenant",
    "read_only": False,
    "expires_at": "2026-11-22T20:00:00Z",
}
_LINK: JsonDict = {"link": "GXpV2f8tqXv6yqC5ZC0DqfQkD9dmQe0uX0a2i2S6wXk", "expires_at": "2026-11-15T20:02:00Z"}


def _check_path(path: str) -> str:
    if problem := find_path_problem(path):
        raise ValueError(problem)
    return path


class LoginRequest(BaseModel):
    """A token or a one-time link."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_ASKED]})

    token: str = Field(default="", max_length=16 * 1024, description="Only over TLS.")
    link: str = Field(default="", max_length=256, description="The text of a one-time link.")
    path: Annotated[str, AfterValidator(_check_path)] = Field(
        default="/", description="Path of the cookie: where the server is behind a proxy, with a slash at the end."
    )
    read_only: bool = Field(default=False, description="The login may change nothing.")

    @model_validator(mode="after")
    def _check_one(self) -> LoginRequest:
        if bool(self.token) == bool(self.link):
            raise ValueError("send a token or a link, and not both")
        return self


class LoginAnswer(BaseModel):
    """The half of the login that the page keeps; the other is the cookie of this answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LOGIN]})

    key: str = Field(description="Send it as x-trainmaster-login with every request.")
    user: str
    read_only: bool
    expires_at: str = Field(description="At the latest. Without requests for 12 hours it ends before.")


class LinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"read_only": True}]})

    read_only: bool = Field(default=False, description="The login that it opens may change nothing.")


class LinkAnswer(BaseModel):
    """Valid once: whoever opens BASE/ui/#/login?link=LINK first acts as the caller who asked for it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LINK]})

    link: str
    expires_at: str
