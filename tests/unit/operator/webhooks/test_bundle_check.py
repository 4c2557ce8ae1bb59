"""Whether API servers would take the certificate of the webhooks, from a handshake in memory."""

from __future__ import annotations

import base64
import ssl

import pytest

from trainmaster.api.meta import Object
from trainmaster.auth.pki import issue_server_keys
from trainmaster.operator import tls
from trainmaster.operator.webhooks.bundle_check import accepts, list_hooks
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit

_NAME = "op.ns.svc"
RIGHT, WRONG = (issue_server_keys([_NAME], VirtualClock()) for _ in range(2))


@pytest.mark.parametrize(
    ("bundle", "host", "expected"),
    [
        (RIGHT.ca, _NAME, True),
        (WRONG.ca + RIGHT.ca, _NAME, True),
        (WRONG.ca, _NAME, False),
        (RIGHT.ca, "other.ns.svc", False),
        ("", _NAME, False),
        ("no certificate", _NAME, False),
    ],
)
def test_a_bundle_fits_if_it_has_the_ca_and_the_name_is_right(bundle: str, host: str, expected: bool) -> None:
    assert accepts(tls.build_context(RIGHT.certificate, RIGHT.key), bundle, host) is expected


def test_a_server_that_asks_for_certificates_of_clients_is_no_reason() -> None:
    context = tls.build_context(RIGHT.certificate, RIGHT.key)
    context.load_verify_locations(cadata=WRONG.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    assert accepts(context, RIGHT.ca, _NAME)


def test_hooks_are_reached_by_service_or_by_url() -> None:
    encoded = base64.b64encode(b"PEM").decode()
    service: Object = {"clientConfig": {"service": {"name": "op", "namespace": "ns"}, "caBundle": encoded}}
    url: Object = {"clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": "%%%"}}
    found = list_hooks({"webhooks": [service, service, url, {"clientConfig": {}}]})
    assert found == [("PEM", _NAME), ("", "127.0.0.1"), ("", "")]
