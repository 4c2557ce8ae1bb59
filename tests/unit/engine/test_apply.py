"""Which refusals a fresh look can heal."""

from __future__ import annotations

import pytest

from trainmaster.api import status
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import StatusError
from trainmaster.client.http import Unreachable
from trainmaster.client.writes import Create, Delete, Patch, Write, WriteRefusal
from trainmaster.engine.apply import is_passing

pytestmark = pytest.mark.unit

CREATE = Create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "b"}})
UNSEEN = Create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "b"}}, existing="report")
PATCH = Patch(CONFIG_MAPS, "b", "a", {})
DELETE = Delete(CONFIG_MAPS, "b", "a")


@pytest.mark.parametrize(
    ("write", "error", "passing"),
    [
        pytest.param(PATCH, status.not_found(CONFIG_MAPS, "a"), True, id="what was to be changed is gone"),
        pytest.param(DELETE, status.not_found(CONFIG_MAPS, "a"), True, id="what was to be deleted is gone"),
        pytest.param(CREATE, status.not_found(CONFIG_MAPS, "a"), False, id="the kind or the namespace is missing"),
        pytest.param(CREATE, status.already_exists(CONFIG_MAPS, "a"), True, id="it exists already"),
        pytest.param(UNSEEN, status.already_exists(CONFIG_MAPS, "a"), False, id="the name is taken"),
        pytest.param(UNSEEN, status.conflict(CONFIG_MAPS, "a"), True, id="a quota was being changed"),
        pytest.param(PATCH, StatusError(409, "Conflict", "x"), True, id="somebody was faster"),
        pytest.param(CREATE, Unreachable("x", sent=True), True, id="no answer came"),
        pytest.param(CREATE, StatusError(429, "TooManyRequests", "x"), True, id="too many requests"),
        pytest.param(CREATE, StatusError(403, "Forbidden", "x"), False, id="forbidden"),
        pytest.param(CREATE, StatusError(422, "Invalid", "x"), False, id="invalid"),
    ],
)
def test_a_refusal_passes_when_reading_again_can_help(write: Write, error: StatusError, passing: bool) -> None:
    assert is_passing(WriteRefusal(write, error)) is passing
