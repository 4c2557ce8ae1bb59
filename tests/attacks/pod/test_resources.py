"""A program in a tenant's Pod takes all it can get of the machine: memory in every form, processes, terminals, files.

The tenant has 256Mi, one CPU and 64 processes. Whatever it does, its Pods together stay within that, and others go on.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.pod.hostile import FORKS, WAYS, build_forks
from tests.attacks.site import Caller, Site, add_tenant, make_caller, unique
from tests.support.clients import JSON
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.pod_exec import STDOUT, ExecOptions, open_exec

pytestmark = pytest.mark.attacks


@pytest.fixture(scope="module")
def small(site: Site) -> Iterator[Caller]:
    if site.level != "full":
        pytest.skip("tenants have walls at level full only")
    caller = add_tenant(site.server, unique("small"), "--cpu", "1", "--memory", "256Mi", "--pids", "64")
    yield caller
    caller.close()


def python(code: str) -> dict[str, Any]:
    return {"container": {"command": ["python3", "-c", code]}}


def run(caller: Caller, code: str, **spec: Any) -> tuple[JSON, str]:
    """The Pod as it ended, and what it printed."""
    name = unique("taker")
    caller.start_pod(name, "", **python(code), **spec)
    try:
        pod = caller.wait_for_pod(name)
        return pod, caller.read_log(name)
    finally:
        caller.kube.delete(f"{caller.path('pods', name)}?gracePeriodSeconds=0")


def get_end(pod: JSON) -> JSON:
    found: JSON = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


def test_programs_go_before_the_server_when_the_machine_has_no_memory_left(site: Site) -> None:
    """Many small ones can take all of it, and the kernel would end the largest process: the server."""
    code = """
def read():
    return open("/proc/self/oom_score_adj").read().strip()
print(read())
try:
    open("/proc/self/oom_score_adj", "w").write("-500")
except OSError:
    pass
print(read())
"""
    _, printed = run(site.ann, code)
    assert printed.split() == ["900", "900"]
    assert int(Path(f"/proc/{site.server.pid}/oom_score_adj").read_text()) == (-500 if may_go_last() else 0)


def may_go_last() -> bool:
    """CAP_SYS_RESOURCE, which root lacks in some virtual machines."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) & 1 << 24)


@pytest.mark.parametrize("way", WAYS)
def test_memory_in_every_form_is_counted(small: Caller, way: str) -> None:
    pod, printed = run(small, f"{WAYS[way]}\nprint('got through')")
    assert get_end(pod)["reason"] == "OOMKilled", (get_end(pod), printed)


def test_children_get_no_memory_of_their_own(small: Caller) -> None:
    code = """
import os, time
for _ in range(20):
    if not os.fork():
        held = bytearray(b"x" * (40 << 20))
        time.sleep(3)
        os._exit(0)
alive = sum(os.wait()[1] == 0 for _ in range(20))
print("alive", alive)
"""
    pod, printed = run(small, code)
    # Forty by twenty is three times what there is: whoever was last is killed, the parent perhaps too.
    assert get_end(pod)["reason"] == "OOMKilled" or int(printed.split()[1]) <= 6, printed


def test_pages_of_files_give_way_to_programs(small: Caller) -> None:
    """The kernel keeps what was written as long as there is room; it counts, and kills nobody."""
    code = """
import os
with open("file", "wb") as file:
    for _ in range(40):
        file.write(bytes(8 << 20))
held = bytearray(b"x" * (100 << 20))
os.unlink("file")
print("fine")
"""
    pod, printed = run(small, code)
    assert printed.strip() == "fine", get_end(pod)


@pytest.mark.parametrize("way", FORKS)
def test_processes_and_threads_end_at_the_tenants_number(small: Caller, way: str) -> None:
    _, printed = run(small, f"{build_forks(way)}\nos._exit(0)")
    assert printed.startswith("had "), printed
    assert 10 < int(printed.split()[1]) < 64


def test_a_deep_tree_of_processes_does_not_end_the_pods_keeper(site: Site) -> None:
    """Each process starts the next: looking through them must not depend on how deep they are."""
    # Executed anew each time: a chain of forks alone gets slow in the kernel.
    script = 'if [ "$0" -eq 0 ]; then echo deep; sleep 60; else sh -c "$1" $(($0 - 1)) "$1"; fi; true'
    name = unique("deep")
    site.ann.start_pod(name, "", container={"command": ["sh", "-c", script, "1200", script]})
    site.ann.wait_for_pod(name, "Running")
    wait_until(lambda: "deep" in site.ann.read_log(name))
    time.sleep(1)
    metrics = site.owner.kube.call("GET", f"/apis/metrics.k8s.io/v1beta1/namespaces/ann/pods/{name}")
    assert metrics[0] in (200, 404)
    assert site.ann.kube.get(site.ann.path("pods", name))["status"]["phase"] == "Running"
    site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")
    wait_until(lambda: site.ann.kube.call("GET", site.ann.path("pods", name))[0] == 404)


def test_a_flood_of_output_costs_no_more_than_a_share_of_a_processor(site: Site) -> None:
    """The shim that reads it is in nobody's control group."""
    name = unique("flood")
    made = site.ann.start_pod(name, "yes")
    site.ann.wait_for_pod(name, "Running")
    shim = json.loads((site.server.home / "pods" / made["metadata"]["uid"] / "shim.json").read_bytes())["pid"]
    before, began = read_ticks(shim), time.monotonic()
    time.sleep(3)
    share = (read_ticks(shim) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")
    assert 0.0 < share < 0.29


def read_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_many_pods_together_get_no_more_processes_than_one(small: Caller) -> None:
    names = [unique("many") for _ in range(3)]
    limits = {"resources": {"limits": {"memory": "80Mi", "cpu": "100m"}}}
    code = f"{build_forks('processes')}\ntime.sleep(3)"
    for name in names:
        small.start_pod(name, "", container={**python(code)["container"], **limits})
    for name in names:
        small.wait_for_pod(name)
    had = [int((small.read_log(name).split() or ["", "0"])[1]) for name in names if "had" in small.read_log(name)]
    for name in names:
        small.kube.delete(f"{small.path('pods', name)}?gracePeriodSeconds=0")
    assert sum(had) < 64, had


def test_limits_of_several_pods_do_not_add_up_to_more_than_the_quota(site: Site, small: Caller) -> None:
    def create(number: int) -> int:
        own = make_caller(site.server, small.namespace, small.token)
        body = small.build_pod(
            unique(f"race{number}"), "sleep 1", container={"resources": {"limits": {"memory": "100Mi", "cpu": "10m"}}}
        )
        try:
            return own.kube.call("POST", small.path("pods"), body)[0]
        finally:
            own.close()

    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(create, range(6)))
    for pod in small.kube.get(small.path("pods"))["items"]:
        small.kube.delete(f"{small.path('pods', pod['metadata']['name'])}?gracePeriodSeconds=0")
    assert sorted(codes) == [201, 201, 403, 403, 403, 403]


def test_programs_started_by_exec_count_as_the_pods_own(site: Site, small: Caller) -> None:
    name = unique("entered")
    small.start_pod(name, "sleep 60")
    small.wait_for_pod(name, "Running")
    printed = execute(site, small, name, "python3", "-c", build_forks("processes"))
    assert printed.startswith("had ") and int(printed.split()[1]) < 64, printed
    printed = execute(site, small, name, "python3", "-c", f"{WAYS['heap']}\nprint('got through')")
    assert "got through" not in printed
    small.kube.delete(f"{small.path('pods', name)}?gracePeriodSeconds=0")


def execute(site: Site, caller: Caller, pod: str, *argv: str) -> str:
    config = ClusterConfig(site.server.url, ca_pem=site.server.ca.read_text(), token=caller.token)

    async def main() -> bytes:
        found = b""
        async with open_exec(config, caller.namespace, pod, ExecOptions(list(argv))) as session:
            async for channel, data in session.outputs():
                found += data if channel == STDOUT else b""
        return found

    return asyncio.run(main()).decode()


def test_another_tenant_works_meanwhile(site: Site, small: Caller) -> None:
    name = unique("bomb")
    small.start_pod(name, "", **python("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"))
    small.wait_for_pod(name, "Running")
    assert site.bob.run_pod(unique("calm"), "echo fine").strip() == "fine"
    small.kube.delete(f"{small.path('pods', name)}?gracePeriodSeconds=0")
    wait_until(lambda: small.kube.call("GET", small.path("pods", name))[0] == 404)
