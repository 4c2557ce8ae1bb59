"""A certificate is replaced in steps: stored, trusted, served, and the old one forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.auth.pki import ServerKeys
from trainmaster.operator.webhooks.rotation import (
    RotationTimes,
    WebhookKeys,
    build_secret,
    decide_step,
    read_secret,
)

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("b.svc", "a.svc")
TIMES = RotationTimes(days=100, renew_days=10, overlap=60.0, retire=600.0)


def make_issuer() -> Callable[[], ServerKeys]:
    serial = iter("1234")

    def issue() -> ServerKeys:
        number = next(serial)
        return ServerKeys(f"ca {number}", f"certificate {number}", f"key {number}")

    return issue


def test_from_one_certificate_to_the_next_both_are_trusted() -> None:
    issue, later = make_issuer(), NOW + timedelta(days=91)
    first = decide_step(None, NAMES, NOW, 0.0, TIMES, issue).keys
    assert first is not None and (first.names, first.bundle) == (("a.svc", "b.svc"), "ca 1\n")
    assert decide_step(first, NAMES, NOW, 0.0, TIMES, issue).wait == 3600.0
    assert decide_step(first, NAMES, NOW + timedelta(days=90, seconds=-5), 9.0, TIMES, issue).wait == 5.0
    prepared = decide_step(first, NAMES, later, 0.0, TIMES, issue).keys
    assert prepared is not None
    assert (prepared.current.certificate, prepared.bundle) == ("certificate 1", "ca 1\nca 2\n")
    assert decide_step(prepared, NAMES, later, 20.0, TIMES, issue).wait == 40.0
    serving = decide_step(prepared, NAMES, later, 60.0, TIMES, issue).keys
    assert serving is not None
    assert (serving.current.certificate, serving.bundle) == ("certificate 2", "ca 2\nca 1\n")
    assert serving.expires == later + timedelta(days=100)
    assert decide_step(serving, NAMES, later, 100.0, TIMES, issue).wait == 500.0
    done = decide_step(serving, NAMES, later, 600.0, TIMES, issue).keys
    assert done is not None and (done.current, done.bundle) == (serving.current, "ca 2\n")


@pytest.mark.parametrize(("names", "later"), [(("other.svc",), 0), (NAMES, 100)])
def test_one_that_nobody_can_use_is_replaced_at_once(names: tuple[str, ...], later: int) -> None:
    issue = make_issuer()
    first = decide_step(None, NAMES, NOW, 0.0, TIMES, issue).keys
    made = decide_step(first, names, NOW + timedelta(days=later), 0.0, TIMES, issue).keys
    assert made is not None and (made.current.certificate, made.bundle) == ("certificate 2", "ca 2\nca 1\n")


def test_what_is_stored_is_read_again() -> None:
    issue = make_issuer()
    for keys in (
        WebhookKeys(issue(), NOW, ("a.svc", "b.svc")),
        WebhookKeys(issue(), NOW, ("a.svc",), issue(), NOW + timedelta(days=1), "ca 0"),
    ):
        secret = build_secret(keys, "ns", "7")
        assert read_secret(secret) == keys
        assert (secret["metadata"]["resourceVersion"], secret["type"]) == ("7", "kubernetes.io/tls")


def test_a_secret_that_somebody_damaged_is_no_certificate() -> None:
    secret = build_secret(WebhookKeys(make_issuer()(), NOW, NAMES), "ns")
    for part in ("ca.crt", "tls.crt", "tls.key"):
        assert read_secret({**secret, "data": {**secret["data"], part: ""}}) is None
    assert read_secret({**secret, "data": {**secret["data"], "tls.crt": "%"}}) is None
    assert read_secret({**secret, "metadata": {}}) is None
