"""Who a request is from: what API servers say about it, and whose word is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.api.status import StatusError
from trainmaster.auth.pki import issue_server_keys
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.messages import IncomingRequest
from trainmaster.kit.clock import SystemClock
from trainmaster.operator.records.front_proxy import FrontProxy, read_caller, read_front_proxy

pytestmark = pytest.mark.unit

TRUSTED = FrontProxy("ca", ("front",), ("x-remote-user",), ("x-remote-group",), ("x-remote-extra-",), ("x-remote-uid",))
NOW = 1_800_000_000.0
LATER, BEFORE = "Jan  1 00:00:00 2030 GMT", "Jan  1 00:00:00 2026 GMT"


def make_request(
    headers: Mapping[str, str],
    repeated: Mapping[str, list[str]] | None = None,
    *,
    name: str = "front",
    until: str = LATER,
) -> IncomingRequest:
    request = IncomingRequest("GET", "/", dict(headers), b"")
    request.repeated = repeated or {}
    request.peer = {"subject": ((("organizationName", "o"),), (("commonName", name),)), "notAfter": until}
    return request


def test_everything_that_an_api_server_says_is_taken() -> None:
    headers = {
        "x-remote-user": "jane",
        "x-remote-uid": "u1",
        "x-remote-group": "a, b",
        "x-remote-extra-authentication.kubernetes.io%2fpod-name": "p",
        "x-other": "y",
    }
    caller = read_caller(TRUSTED, make_request(headers, {"x-remote-group": ["a", "b"]}), NOW)
    assert caller == ActingIdentity("jane", "u1", ("a", "b"), {"authentication.kubernetes.io/pod-name": ("p",)})


def test_a_group_with_a_comma_in_its_name_is_one_group() -> None:
    headers = {"x-remote-user": "jane", "x-remote-group": "a, system:masters"}
    assert read_caller(TRUSTED, make_request(headers), NOW).groups == ("a, system:masters",)


@pytest.mark.parametrize("what", ["no certificate", "another name", "expired", "nobody is trusted", "nobody is named"])
def test_everybody_else_is_refused(what: str) -> None:
    headers = {} if what == "nobody is named" else {"x-remote-user": "admin", "x-remote-group": "system:masters"}
    name, until = "other" if what == "another name" else "front", BEFORE if what == "expired" else LATER
    request = make_request(headers, name=name, until=until)
    if what == "no certificate":
        request.peer = None
    with pytest.raises(StatusError) as caught:
        read_caller(None if what == "nobody is trusted" else TRUSTED, request, NOW)
    assert caught.value.code == 401


def test_without_names_every_certificate_of_the_ca_counts() -> None:
    trusted = replace(TRUSTED, names=())
    assert read_caller(trusted, make_request({"x-remote-user": "jane"}, name="other"), NOW).user == "jane"


def make_data(**changes: Any) -> dict[str, Any]:
    ca = issue_server_keys(["x"], SystemClock()).ca
    data = {
        "requestheader-client-ca-file": ca,
        "requestheader-allowed-names": json.dumps(["Front"]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
    }
    return {"data": {key: value for key, value in {**data, **changes}.items() if value is not None}}


def test_the_config_map_says_who_is_believed() -> None:
    found = read_front_proxy(make_data())
    assert found is not None and found.names == ("Front",), "names are case-sensitive, and headers are not"
    assert (found.user_headers, found.extra_prefixes) == (("x-remote-user",), ("x-remote-extra-",))


@pytest.mark.parametrize(
    "changes",
    [
        {"requestheader-client-ca-file": None},
        {"requestheader-client-ca-file": "no certificate"},
        {"requestheader-username-headers": None},
        {"requestheader-username-headers": "[]"},
        {"requestheader-allowed-names": "Front"},
        {"requestheader-allowed-names": '{"a": 1}'},
        {"requestheader-group-headers": "[1]"},
    ],
)
def test_from_half_a_config_map_nobody_is_believed(changes: dict[str, Any]) -> None:
    assert read_front_proxy(make_data(**changes)) is None
