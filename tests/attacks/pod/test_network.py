"""Code in a tenant's Pod looks for others: Pods of other tenants and of the owner, the machine, its network."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.attacks.site import Caller, Site, running_site, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

SERVE = """exec python -c '
import socket
s = socket.create_server(("0.0.0.0", 7777))
print("listens", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"secret")
    c.close()
'"""
TRY = """python - <<'END'
import socket, threading
def go(where):
    try:
        with socket.create_connection(where, 2) as link:
            print(where, link.recv(100).decode(), flush=True)
    except OSError as error:
        print(where, "refused", error, flush=True)
threads = [threading.Thread(target=go, args=(where,)) for where in %r]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
END"""
API = """python - <<'END'
import http.client, ssl
context = ssl._create_unverified_context()
direct = http.client.HTTPSConnection("10.96.0.1", 443, context=context, timeout=10)
direct.request("GET", "/version")
print("direct", direct.getresponse().status)
proxied = http.client.HTTPSConnection("10.96.0.2", 3128, context=context, timeout=10)
proxied.set_tunnel("10.96.0.1", 443)
proxied.request("GET", "/version")
print("proxied", proxied.getresponse().status)
END"""
ASK = """python - <<'END'
import socket
for target in %r:
    try:
        with socket.create_connection(("10.96.0.2", 3128), 10) as link:
            link.sendall(b"CONNECT %%s HTTP/1.1\\r\\n\\r\\n" %% target.encode())
            link.settimeout(10)
            answer = link.recv(1000).decode()
            if " 200 " in answer:
                answer += link.recv(100).decode()
            print(target, "=>", " ".join(answer.split()))
    except OSError as error:
        print(target, "=> nothing", error)
END"""


@pytest.fixture(scope="module", params=["full", "user"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if request.param == "full":
        yield request.getfixturevalue("site")
        return
    if os.geteuid() != 0:
        pytest.skip("as the session's site")
    home = tmp_path_factory.mktemp("user-level") / "home"
    environ = {"TRAINMASTER_NODE_ISOLATION": "user"}
    with running_site(home, environ=environ, tenant=("--without-walls",)) as site:
        assert site.level == "user"
        yield site


def serve(caller: Caller) -> JSON:
    name = unique("serves")
    caller.start_pod(name, SERVE)
    return caller.wait_for_pod(name, "Running")


@pytest.fixture(scope="module")
def servers(place: Site) -> Iterator[dict[str, str]]:
    """A Pod of ann, of bob and of the owner, each of which answers whoever reaches it."""
    pods = {caller: serve(caller) for caller in (place.ann, place.bob, place.owner)}
    yield {caller.namespace: pod["status"]["podIP"] for caller, pod in pods.items()}
    for caller, pod in pods.items():
        caller.kube.delete(f"{caller.path('pods', pod['metadata']['name'])}?gracePeriodSeconds=0")


def probe(caller: Caller, servers: dict[str, str]) -> dict[str, bool]:
    """Which of the servers a Pod of the caller reaches."""
    targets = [(address, 7777) for address in servers.values()]
    printed = caller.run_pod(unique("probes"), TRY % (targets,))
    lines = printed.splitlines()
    return {name: any(address in line and "secret" in line for line in lines) for name, address in servers.items()}


def test_pods_of_a_tenant_reach_each_other_and_nobody_else(place: Site, servers: dict[str, str]) -> None:
    assert probe(place.ann, servers) == {"ann": True, "bob": False, "default": False}
    assert probe(place.bob, servers) == {"ann": False, "bob": True, "default": False}


def test_the_owners_pods_are_not_on_a_tenants_network_either(place: Site, servers: dict[str, str]) -> None:
    assert probe(place.owner, servers) == {"ann": False, "bob": False, "default": True}


def list_own_addresses() -> list[str]:
    found = ["127.0.0.1"]
    for family, target in ((socket.AF_INET, "192.0.2.200"), (socket.AF_INET6, "2001:db8::9")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probing:
            probing.connect((target, 9))
            found.append(str(probing.getsockname()[0]))
    return found


@pytest.fixture(scope="module")
def listener() -> Iterator[int]:
    """A service of the machine, on all its addresses; its port."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:

        def work() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = server.accept()
                    link.sendall(b"HOST-SECRET")
                    link.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def spell(port: int) -> list[str]:
    """This machine, in all ways that a determined person would write it."""
    names = ["localhost", "localhost.", socket.gethostname(), "0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"]
    names += ["[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "user@127.0.0.1"]
    for address in list_own_addresses():
        names.append(f"[{address}]" if ":" in address else address)
        if ":" not in address:
            names.append(f"[::ffff:{address}]")
            names.append(str(int.from_bytes(socket.inet_aton(address), "big")))
    return [f"{name}:{port}" for name in names]


def test_the_machine_is_not_reached_through_the_proxy(place: Site, listener: int) -> None:
    targets = spell(listener)
    printed = place.ann.run_pod(unique("asks"), ASK % (targets,))
    assert "HOST-SECRET" not in printed
    lines = [line for line in printed.splitlines() if " => " in line]
    assert len(lines) == len(targets), printed
    assert [line for line in lines if " 403 " not in line and " 502 " not in line and " 400 " not in line] == []


def test_private_networks_and_other_pods_are_not_reached_through_the_proxy(
    place: Site, servers: dict[str, str], listener: int
) -> None:
    others = [f"{servers['bob']}:7777", f"{servers['default']}:7777", "169.254.169.254:80", "[fe80::1]:80"]
    private = ["10.0.0.1:80", "192.168.0.1:80", "172.16.0.1:80", "100.64.0.1:80", "[fd00::7]:80", "224.0.0.1:80"]
    targets = others + private
    printed = place.ann.run_pod(unique("asks"), ASK % (targets,))
    lines = [line for line in printed.splitlines() if " => " in line]
    assert len(lines) == len(targets), printed
    assert [line for line in lines if " 403 Forbidden" not in line] == []
    assert "node.tenant_egress" in printed


def test_the_api_server_is_reached_all_the_same(place: Site) -> None:
    printed = place.ann.run_pod(unique("asks"), API)
    assert [line.split()[0] for line in printed.splitlines()] == ["direct", "proxied"], printed


def test_the_owners_jobs_keep_the_local_network(place: Site, listener: int) -> None:
    own = [address for address in list_own_addresses() if ":" not in address and not address.startswith("127.")]
    if not own:
        pytest.skip("this machine has no address but its loopback")
    printed = place.owner.run_pod(unique("asks"), ASK % ([f"{own[0]}:{listener}"],))
    assert "HOST-SECRET" in printed


def test_abstract_sockets_of_the_machine_are_out_of_reach(place: Site) -> None:
    name = unique("abstract")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0{name}")
        server.listen()
        script = f"""python - <<'END'
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\\0{name}")
    print("connected")
except OSError as error:
    print("refused", error)
END"""
        assert "refused" in place.ann.run_pod(unique("asks"), script)
