"""What one caller may cost: who is refused is told which limit it was."""

from __future__ import annotations

import pytest

from trainmaster.apiserver.http.callers import CallerLimits, NotYetError, TooFastError
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.auth.contract import MASTERS
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.gatekeeper import Gatekeeper
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit


def make_limits(limits: ApiLimits) -> CallerLimits:
    return CallerLimits(limits, VirtualClock(), Gatekeeper(limits))


def make_request(user: str, *groups: str) -> ApiRequest:
    request = ApiRequest("GET", "/api/v1/pods", {}, b"")
    request.identity = ActingIdentity(user, groups=groups)
    return request


def refuse(callers: CallerLimits, user: str) -> TooFastError:
    """What this user hears who does not stop asking, while others ask too."""
    for _ in range(20_000):
        callers.admit_caller(make_request("neighbour", MASTERS))
        request = make_request(user)
        try:
            callers.admit_caller(request)
        except NotYetError:
            request.has_waited = True
        except TooFastError as error:
            return error
        callers.note(request, 0.02)
    raise AssertionError("never refused")


def test_who_asks_too_often_is_told_the_rate() -> None:
    error = refuse(make_limits(ApiLimits(loop_share=0.0, requests_per_second=50.0, request_burst=100)), "ann")
    assert "50 requests a second" in error.message and "(limits.requests_per_second)" in error.message


def test_who_would_wait_too_long_is_told_the_share() -> None:
    error = refuse(make_limits(ApiLimits(loop_share=0.1, requests_per_second=0.0)), "ann")
    assert "10 percent of the server's time" in error.message and "(limits.loop_share)" in error.message
    assert error.retry_after is not None and error.retry_after >= 10


def test_administrators_are_never_refused() -> None:
    callers = make_limits(ApiLimits(requests_per_second=1.0, request_burst=1))
    for _ in range(100):
        callers.admit_caller(make_request("root", MASTERS))
        callers.admit_caller(make_request("other", MASTERS))
