"""What the proxy of a Pod understands, and where it does not lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.shim.protocol import Relay
from trainmaster.shim.sandbox.relay import ProxyRefused, check_address, find_forward, parse_request, read_server

pytestmark = pytest.mark.unit


def test_connect_names_its_target() -> None:
    request = parse_request(b"CONNECT example.org:8443 HTTP/1.1\r\nHost: example.org:8443")
    assert (request.method, request.host, request.port, request.head) == ("CONNECT", "example.org", 8443, b"")


def test_a_plain_request_is_sent_on_in_origin_form_and_once() -> None:
    lines = (b"GET http://example.org/a?b=c HTTP/1.1", b"Host: example.org", b"Proxy-Connection: x", b"Connection: y")
    head = b"\r\n".join(lines)
    request = parse_request(head)
    assert (request.host, request.port) == ("example.org", 80)
    assert request.head == b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"nonsense", id="no request"),
        pytest.param(b"GET /path HTTP/1.1", id="not to a proxy"),
        pytest.param(b"GET ftp://host/x HTTP/1.1", id="another scheme"),
        pytest.param(b"CONNECT host:port HTTP/1.1", id="no port"),
        pytest.param(b"CONNECT host:99999 HTTP/1.1", id="no such port"),
    ],
)
def test_what_is_not_understood_is_refused(head: bytes) -> None:
    with pytest.raises(ProxyRefused) as caught:
        parse_request(head)
    assert caught.value.status == "400 Bad Request"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::ffff:127.0.0.1"]
)
def test_the_machine_itself_is_out_of_reach(address: str) -> None:
    for reach in ("", "lan", "internet", "none"):
        with pytest.raises(ProxyRefused):
            check_address(address, Relay("10.96.0.2", 3128, reach=reach))


def test_a_server_is_looked_up_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text('{"server": "https://127.0.0.1:6443"}')
    assert read_server(str(file)) == ("127.0.0.1", 6443)
    file.write_text('{"server": ""}')
    with pytest.raises(OSError, match="no server runs"):
        read_server(str(file))


@pytest.mark.parametrize("address", ["93.184.216.34", "10.0.0.7", "2606:2800::1"])
def test_other_addresses_are_not(address: str) -> None:
    check_address(address, Relay("10.96.0.2", 3128))


def test_the_proxy_knows_the_forwards_beside_it() -> None:
    api = Relay("10.96.0.1", 443, server_file="server.json")
    relays = [Relay("10.96.0.2", 3128), api]
    assert find_forward(relays, "10.96.0.1", 443) is api
    assert find_forward(relays, "10.96.0.1", 80) is None and find_forward(relays, "10.96.0.2", 3128) is None
