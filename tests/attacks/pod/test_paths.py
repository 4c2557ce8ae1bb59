"""Paths that a Pod can choose or change, and that root looks at, writes to, measures or removes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.pod.hostile import make_claim, mount_claim
from tests.attacks.pod.test_sub_path import run_to_some_end
from tests.attacks.site import Site, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

DEEP = """
import os
os.chdir("/data")
for number in range(3000):
    os.mkdir("d"); os.chdir("d"); open("f", "w").close()
"""


@pytest.mark.parametrize("kind", ["serviceAccountToken", "configMap", "downwardAPI"])
def test_a_file_of_a_volume_cannot_lie_outside_of_it(site: Site, tmp_path: Path, kind: str) -> None:
    """The server writes these files, as root."""
    path = f"../../../../../../../../../../../../../../../..{tmp_path}/pwned"
    parts: dict[str, JSON] = {
        "serviceAccountToken": {"path": path},
        "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": path}]},
        "downwardAPI": {"items": [{"path": path, "fieldRef": {"fieldPath": "metadata.name"}}]},
    }
    volume = {"name": "data", "projected": {"sources": [{kind: parts[kind]}]}}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    body = site.ann.build_pod(unique("outside"), "true", volumes=[volume], container=mounts)
    code, answer = site.ann.kube.call("POST", site.ann.path("pods"), body)
    assert code == 422, answer
    assert "must not contain '..'" in answer["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_deeper_than_any_path_is_measured_and_removed(site: Site) -> None:
    """Python's own removal ends with RecursionError there, and the Pod's directory would stay for ever."""
    ann, name = site.ann, unique("deep")
    volumes = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = f"cat > /tmp/x.py <<'E'\n{DEEP}\nE\npython3 /tmp/x.py && echo made"
    pod = ann.start_pod(name, script, volumes=volumes, container=mounts)
    ann.wait_for_pod(name)
    assert ann.read_log(name).strip() == "made"
    directory = site.server.home / "pods" / pod["metadata"]["uid"]
    assert directory.exists()
    ann.kube.delete(f"{ann.path('pods', name)}?gracePeriodSeconds=0")
    deadline = time.monotonic() + 30
    while directory.exists():
        assert time.monotonic() < deadline, "the directory is left"
        time.sleep(0.05)
    assert site.is_alive()


@pytest.fixture(scope="module")
def crowd(site: Site) -> Iterator[tuple[str, float]]:
    """A Pod with 200,000 names in a volume, made while other tests run: it is measured 10 s after its start, and not
    soon again. With it what the server's other threads had used before."""
    before = read_cpu(site.server.process.pid)
    ann, name = site.ann, unique("many")
    volumes = [{"name": "data", "emptyDir": {"sizeLimit": "4Gi"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    # Hard links: a name costs much less than a file, and to look at it costs the same.
    program = (
        "import os\nos.chdir('/data')\nfor d in range(10):\n os.mkdir(str(d))\n open(f'{d}/f', 'w').close()\n"
        " for n in range(20000):\n  os.link(f'{d}/f', f'{d}/{n}')\nos.system('sleep 1000')\n"
    )
    ann.start_pod(name, f'exec python3 -c "{program}"', volumes=volumes, container=mounts)
    yield name, before
    ann.kube.delete(f"{ann.path('pods', name)}?gracePeriodSeconds=0")


def read_cpu(pid: int) -> float:
    """Seconds that all threads of the server but its event loop have used."""
    ticks = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    del ticks[pid]
    return sum(ticks.values())


@pytest.mark.usefixtures("crowd")
def test_more_mounts_than_anybody_needs_are_refused(site: Site) -> None:
    mounts = [{"name": "data", "mountPath": f"/m/{number}", "subPath": f"s/{number}"} for number in range(3000)]
    volumes = mount_claim(make_claim(site.ann))
    name = unique("mounts")
    site.ann.start_pod(name, "true", volumes=volumes, container={"volumeMounts": mounts})
    try:
        pod = site.ann.wait_for_pod(name)
        assert "has 3000 volumeMounts; this node mounts 500" in pod["status"]["message"]
    finally:
        site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")


def test_the_hosts_file_and_the_message_of_a_pod_can_be_as_large_as_it_likes(site: Site) -> None:
    """The server reads and writes both."""
    script = (
        "truncate -s 1T /etc/hosts 2>/dev/null; truncate -s 1T /dev/termination-log; "
        "printf end >> /dev/termination-log; exit 3"
    )
    name = unique("large")
    site.ann.start_pod(name, script)
    try:
        state = site.ann.wait_for_pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["message"].endswith("end")
        assert len(state["message"]) <= 4096
    finally:
        site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")


def test_a_sub_path_is_made_inside_the_volume_with_its_permissions(site: Site) -> None:
    claim = mount_claim(make_claim(site.ann))
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/m", "subPath": "new/inner"}]}
    said = run_to_some_end(site.ann, unique("new"), "touch /m/x && ls /m", volumes=claim, container=mounts)
    assert said.split()[0] == "x"


def test_very_many_files_in_a_volume_are_counted_beside_the_event_loop(site: Site, crowd: tuple[str, float]) -> None:
    """Where the time of the count goes is what is looked at: how long a request takes depends on the machine."""
    pid = site.server.process.pid
    name, before = crowd
    deadline = time.monotonic() + 40
    while read_cpu(pid) - before < 0.2:
        assert time.monotonic() < deadline, "no other thread has counted anything"
        assert site.owner.kube.call("GET", "/livez")[0] == 200
        time.sleep(0.1)
    assert site.ann.kube.get(site.ann.path("pods", name))["status"]["phase"] == "Running"
