"""Whose address counts behind proxies."""

from __future__ import annotations

import pytest

from trainmaster.edge.addresses import TrustedProxies, build_address_group, parse_network

pytestmark = pytest.mark.unit

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8", "192.0.2.7"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.5", "", "203.0.113.5"),
        ("203.0.113.5", "198.51.100.1", "203.0.113.5"),  # a stranger claims to be a proxy
        ("10.1.1.1", "198.51.100.1", "198.51.100.1"),
        ("10.1.1.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the client itself wrote
        ("10.1.1.1", "198.51.100.1, 10.2.2.2", "198.51.100.1"),  # two proxies
        ("10.1.1.1", "198.51.100.1,192.0.2.7 , 10.2.2.2", "198.51.100.1"),
        ("10.1.1.1", "10.3.3.3", "10.3.3.3"),  # the proxies' own network calls
        ("10.1.1.1", "", "10.1.1.1"),
        ("10.1.1.1", "6.6.6.6, unknown, 10.2.2.2", "10.2.2.2"),
        ("10.1.1.1", "rubbish", "10.1.1.1"),
        ("10.1.1.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.1.1.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:10.1.1.1", "198.51.100.1", "198.51.100.1"),
        ("fd00::2", "2001:db8::1", "2001:db8::1"),
        ("10.1.1.1", ",".join(["6.6.6.6"] * 50_000) + ", 198.51.100.1", "198.51.100.1"),
    ],
)
def test_the_rightmost_hop_that_is_no_proxy_calls(peer: str, forwarded: str, client: str) -> None:
    assert PROXIES.get_client(peer, forwarded) == client


def test_nobody_is_trusted_by_default() -> None:
    assert TrustedProxies().get_client("127.0.0.1", "6.6.6.6") == "127.0.0.1"
    assert not TrustedProxies().trusts("127.0.0.1") and not TrustedProxies()


def test_one_host_of_ipv6_has_a_whole_network() -> None:
    assert build_address_group("2001:db8:1:2::1") == build_address_group("2001:db8:1:2:ffff::9")
    assert build_address_group("2001:db8:1:2::1") != build_address_group("2001:db8:1:3::1")
    assert build_address_group("::ffff:192.0.2.1") == build_address_group("192.0.2.1") == "192.0.2.1"
    assert build_address_group("::1") == "::1"
    assert build_address_group("") == ""


def test_what_is_no_network_is_said() -> None:
    with pytest.raises(ValueError, match=r"proxy\.example"):
        parse_network("proxy.example")
