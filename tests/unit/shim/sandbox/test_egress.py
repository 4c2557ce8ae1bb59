"""How far the proxy leads for tenants: by address, however it is spelled, and by what the owner has opened."""

from __future__ import annotations

import contextlib
import socket

import pytest

from trainmaster.shim.protocol import Relay, SandboxSpec, decode, encode
from trainmaster.shim.sandbox.egress import (
    INTERNET,
    LAN,
    NONE,
    find_refusal,
    is_opened,
    is_own,
    parse_address,
    split_entry,
)
from trainmaster.shim.sandbox.relay import ProxyRefused, check_address, check_upstream, parse_request

pytestmark = pytest.mark.unit

PRIVATE = [
    "10.0.0.7",
    "172.16.3.4",
    "192.168.1.9",
    "100.64.0.1",
    "198.18.0.1",
    "10.244.0.9",
    "10.96.0.1",
    "240.0.0.1",
    "fd12::1",
    "fec0::1",
    "::ffff:10.0.0.7",
    "64:ff9b::a00:7",
    "2002:a00:7::1",
    "2001:0:a00:7::1",
    "::10.0.0.7",
]
PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"]
MACHINE = ["127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1%eth0", "224.0.0.1", "ff02::1"]


@pytest.mark.parametrize("text", PRIVATE)
def test_internet_is_not_the_local_network(text: str) -> None:
    assert "is not a public address" in find_refusal(parse_address(text), INTERNET)


@pytest.mark.parametrize("text", PUBLIC)
def test_internet_is_what_is_public(text: str) -> None:
    assert find_refusal(parse_address(text), INTERNET) == ""
    assert "is not open" in find_refusal(parse_address(text), NONE)


@pytest.mark.parametrize("text", ["10.0.0.7", "fd12::1", *PUBLIC])
def test_all_is_the_local_network_too(text: str) -> None:
    assert find_refusal(parse_address(text), LAN) == ""


@pytest.mark.parametrize("text", MACHINE)
@pytest.mark.parametrize("reach", ["", LAN, INTERNET, NONE])
def test_the_machine_is_never_in_reach(reach: str, text: str) -> None:
    assert find_refusal(parse_address(text), reach)


def list_own() -> list[str]:
    """Addresses of this machine, as programs that want to be found announce them."""
    found = ["127.0.0.1"]
    for family, target in ((socket.AF_INET, "192.0.2.200"), (socket.AF_INET6, "2001:db8::9")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def test_the_machine_knows_its_own_addresses() -> None:
    for text in list_own():
        assert is_own(parse_address(text)), text
        assert find_refusal(parse_address(text), LAN)
    assert not is_own(parse_address("93.184.216.34"))
    assert not is_own(parse_address("2606:2800:220:1::1"))


@pytest.mark.parametrize(
    "entry", ["minio.lan:9000", "10.1.2.3:9000", "10.1.0.0/16", "10.1.2.3", "fd00::/8", "[fd00::1]:80"]
)
def test_what_the_owner_opens_is_understood(entry: str) -> None:
    assert split_entry(entry)[0]


@pytest.mark.parametrize("entry", ["", "minio.lan", ":80", "host:0", "host:99999", "host:x", "10.1.2.3/99"])
def test_what_is_not_understood_opens_nothing(entry: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        split_entry(entry)


def test_an_opening_is_for_that_place_and_port() -> None:
    there = parse_address("10.1.2.3")
    assert is_opened(("10.1.2.3:9000",), "10.1.2.3", 9000, there)
    assert not is_opened(("10.1.2.3:9000",), "10.1.2.3", 22, there)
    assert not is_opened(("10.1.2.3:9000",), "10.1.2.4", 9000, parse_address("10.1.2.4"))
    assert is_opened(("10.1.0.0/16",), "whatever", 22, there)
    assert is_opened(("MinIO.lan:9000",), "minio.lan.", 9000, there)
    assert not is_opened(("minio.lan:9000",), "evil.minio.lan", 9000, there)
    # An address that is opened is opened under every name that leads there.
    assert is_opened(("10.1.2.3:9000",), "minio.lan", 9000, there)


def test_the_refusal_names_the_setting() -> None:
    relay = Relay("10.96.0.2", 3128, reach=INTERNET, allow=("10.1.2.3:9000",))
    with pytest.raises(ProxyRefused, match=r"node\.tenant_egress"):
        check_address("10.1.2.3", relay, "10.1.2.3", 22)
    check_address("10.1.2.3", relay, "10.1.2.3", 9000)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "[::ffff:127.0.0.1]", "localhost"]
)
def test_another_proxy_is_not_asked_for_this_machine(host: str) -> None:
    relay = Relay("10.96.0.2", 3128, upstream="http://proxy:3128", reach=INTERNET)
    with pytest.raises(ProxyRefused):
        check_upstream(parse_request(f"CONNECT {host}:80 HTTP/1.1".encode()), relay)


def test_both_proxies_read_the_same_request() -> None:
    head = b"GET http://user@Example.com:80/a?b HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: keep-alive\r\nX: y"
    request = parse_request(head)
    assert request.upstream_head == (
        b"GET http://example.com:80/a?b HTTP/1.1\r\nHost: example.com:80\r\nX: y\r\nConnection: close"
    )
    assert parse_request(b"CONNECT Example.com:443 HTTP/1.1").upstream_head.startswith(
        b"CONNECT example.com:443 HTTP/1.1"
    )


@pytest.mark.parametrize(
    "line",
    [b"CONNECT a\\b:80 HTTP/1.1", b"CONNECT a\tb:80 HTTP/1.1", b"GET http://a/ HTTP/9", b"G\x00T http://a/ HTTP/1.1"],
)
def test_what_two_proxies_could_read_differently_is_refused(line: bytes) -> None:
    with pytest.raises(ProxyRefused):
        parse_request(line)


def test_a_specification_keeps_what_a_tenant_may_reach() -> None:
    relay = Relay("10.96.0.2", 3128, reach=INTERNET, allow=("10.0.0.0/8", "minio.lan:9000"))
    spec = SandboxSpec("u", "p", "ann", "p", relays=(relay,), segment="0123abcd")
    assert decode(SandboxSpec, encode(spec)) == spec
    assert b"segment" not in encode(SandboxSpec("u", "p", "ann", "p", relays=(Relay("10.96.0.2", 3128),)))
