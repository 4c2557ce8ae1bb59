"""Records of deleted jobs through a real kube-apiserver, for every kubeconfig, with the rights of its user."""

from __future__ import annotations

import io
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.attacks.stranger.door import read_answer
from tests.flow.stage import make_trainjob
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.keys import FRONT_PROXY, make_front_proxy
from tests.seam.operator_run import Run
from tests.seam.records_site import PlantedJob, plant, serving
from tools.toolbox import Toolbox
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.records.front_proxy import NAME as AUTHENTICATION
from trainmaster.operator.records.installation import NAME

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

OWN, HERE, THERE = "records-system", "records-here", "records-there"
GROUP = "records.trainmaster.dev/v1alpha1"
MINE = PlantedJob(HERE, "mine", "11111111-0000-4000-8000-000000000001", ranks=2)
AGAIN = PlantedJob(HERE, "mine", "11111111-0000-4000-8000-000000000000", ended="2025-12-31T00:00:00Z")
TORCH = PlantedJob(HERE, "torch", "22222222-0000-4000-8000-000000000002", kind="PyTorchJob")
THEIRS = PlantedJob(THERE, "theirs", "33333333-0000-4000-8000-000000000003", ranks=1)


@dataclass(frozen=True)
class Site:
    cluster: KubeCluster
    run: Run
    port: int
    folder: Path

    def ask(self, *words: str, user: str = "admin") -> tuple[int, str, str]:
        """A command of ours: (exit code, output, what it says)."""
        out, err = io.StringIO(), io.StringIO()
        code = main([*words, "--kubeconfig", str(self.get_kubeconfig(user))], CommandContext({}, out, err))
        return code, out.getvalue(), err.getvalue()

    def kubectl(self, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        program = self.cluster.toolbox.find_program("kubectl")
        command = [str(program), "--kubeconfig", str(self.get_kubeconfig(user)), "--cache-dir", str(self.folder / user)]
        return subprocess.run([*command, *words], text=True, capture_output=True)

    def read(self, path: str, user: str = "admin") -> Any:
        done = self.kubectl("get", "--raw", f"/apis/{GROUP}{path}", user=user)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def get_kubeconfig(self, user: str) -> Path:
        if user == "admin":
            return self.cluster.kubeconfig
        path = self.folder / f"{user}.kubeconfig"
        if not path.exists():
            folder = self.folder / f"{user}-keys"
            folder.mkdir()
            certificate, key = self.cluster.issue(user, (f"team-{user}",), folder)
            config = json.loads(self.cluster.kubeconfig.read_text())
            config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(key)}
            path.write_text(json.dumps(config))
        return path


@pytest.fixture(scope="module")
def site(seam_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("records")
    for namespace in (OWN, HERE, THERE):
        seam_cluster.kubectl("create", "namespace", namespace)
    grant(seam_cluster)
    plant(folder / "archive", [MINE, AGAIN, TORCH, THEIRS])
    with serving(seam_cluster, OWN, folder, [HERE, THERE]) as served:
        yield Site(seam_cluster, served.run, served.port, folder)


def grant(cluster: KubeCluster) -> None:
    """The team of `reader` may read TrainJobs and logs of Pods in one namespace, `lister` no logs. Nothing grants them
    records."""
    for user, resources, subject in (
        ("reader", "trainjobs,pods/log", "--group=team-reader"),
        ("lister", "trainjobs", "--user=lister"),
    ):
        cluster.kubectl("create", "role", user, "-n", HERE, "--verb=get,list", f"--resource={resources}")
        cluster.kubectl("create", "rolebinding", user, "-n", HERE, f"--role={user}", subject)


def test_kubectl_lists_records_as_a_table(site: Site) -> None:
    done = site.kubectl("get", "jobrecords", "-n", HERE)
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["NAME", "JOB", "KIND", "STATE", "ENDED", "DELETED"]
    assert [line.split()[:4] for line in lines] == [
        [MINE.uid, "mine", "TrainJob", "Complete"],
        [TORCH.uid, "torch", "PyTorchJob", "Complete"],
        [AGAIN.uid, "mine", "TrainJob", "Complete"],
    ]


def test_the_cli_shows_records_of_deleted_jobs(site: Site) -> None:
    code, out, _ = site.ask("history", "list", "-n", HERE)
    assert code == exits.OK and out.count(" mine ") == 2 and "theirs" not in out
    code, out, _ = site.ask("history", "get", "mine", "-n", HERE)
    assert code == exits.OK and f"UID:        {MINE.uid}" in out, "the newest of that name"
    assert "Deleted:    2026-01-01T01:00:00Z by kubernetes-admin (kubectl delete)" in out and "Logs:       4," in out


def test_logs_of_a_deleted_job_come_from_the_archive(site: Site) -> None:
    code, out, err = site.ask("logs", "mine", "-n", HERE)
    assert code == exits.OK and "was deleted; this is from the archive of the operator" in err
    assert out.splitlines() == ["[0] hello from 0 in attempt 1", "[1] hello from 1 in attempt 1"]
    assert site.ask("logs", "mine", "-n", HERE, "--rank", "1", "--attempt", "0")[1] == "hello from 1 in attempt 0\n"


def test_whoever_may_read_jobs_may_read_their_records_and_nothing_else(site: Site) -> None:
    found = site.read(f"/namespaces/{HERE}/jobrecords", "reader")["items"]
    assert [item["metadata"]["name"] for item in found] == [MINE.uid, AGAIN.uid], "no kind that they may not read"
    assert site.ask("logs", "mine", "-n", HERE, "--rank", "0", user="reader")[1] == "hello from 0 in attempt 1\n"
    for words in (
        ("get", "jobrecords", "-n", THERE),
        ("get", "jobrecords", "-A"),
        ("get", "jobrecord", TORCH.uid, "-n", HERE),
        ("get", "jobrecord", THEIRS.uid, "-n", THERE),
        ("get", "jobrecord", "none", "-n", THERE),
    ):
        done = site.kubectl(*words, user="reader")
        assert done.returncode and "(Forbidden)" in done.stderr and "records are for those who may" in done.stderr, (
            words
        )
    code, _, err = site.ask("history", "list", "-n", THERE, user="reader")
    assert code == exits.FAILED and 'User "reader" cannot list resource "trainjobs"' in err


def test_a_record_of_another_namespace_is_not_found(site: Site) -> None:
    for name in (THEIRS.uid, "none"):
        done = site.kubectl("get", "jobrecord", name, "-n", HERE, user="reader")
        assert f'jobrecords.records.trainmaster.dev "{name}" not found' in done.stderr


def test_without_rights_there_is_nothing_to_read(site: Site) -> None:
    for words in (("get", "jobrecords", "-n", HERE), ("get", "jobrecord", MINE.uid, "-n", HERE)):
        done = site.kubectl(*words, user="nobody")
        assert "(Forbidden)" in done.stderr and MINE.uid not in done.stdout
    code, _, err = site.ask("logs", "mine", "-n", HERE, user="nobody")
    assert code == exits.FAILED and "forbidden" in err


def test_logs_need_the_right_to_logs_of_pods(site: Site) -> None:
    assert site.read(f"/namespaces/{HERE}/jobrecords/{MINE.uid}", "lister")["details"]["logs"]
    done = site.kubectl("get", "--raw", f"/apis/{GROUP}/namespaces/{HERE}/jobrecords/{MINE.uid}/log", user="lister")
    assert 'cannot get resource "pods/log"' in done.stderr


def test_lists_come_in_pages(site: Site) -> None:
    names, token = [], ""
    for _ in range(4):
        page = site.read(f"/jobrecords?limit=1&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    assert names == [MINE.uid, TORCH.uid, THEIRS.uid, AGAIN.uid] and not token
    assert site.ask("history", "list", "-A", "--limit", "2", "-o", "json")[1].count('"uid"') == 2
    selected = site.kubectl("get", "jobrecords", "-A", "--field-selector", "record.kind=PyTorchJob", "-o", "name")
    assert selected.stdout.split() == [f"jobrecord.records.trainmaster.dev/{TORCH.uid}"]
    for query in ("continue=x", "limit=-1", "labelSelector=a%3Db", "fieldSelector=record.state!%3DFailed"):
        done = site.kubectl("get", "--raw", f"/apis/{GROUP}/jobrecords?{query}")
        assert "(BadRequest)" in done.stderr, (query, done)


def test_a_log_is_text_for_those_who_ask_for_nothing_else(site: Site) -> None:
    def read(query: str) -> str:
        path = f"/apis/{GROUP}/namespaces/{HERE}/jobrecords/{MINE.uid}/log?{query}"
        done = site.kubectl("get", "--raw", path)
        return done.stdout or done.stderr

    assert read("").splitlines() == ["[node 0] hello from 0 in attempt 1", "[node 1] hello from 1 in attempt 1"]
    assert read("allAttempts=true&rank=0") == "hello from 0 in attempt 0\nhello from 0 in attempt 1\n"
    assert read("rank=1&timestamps=true") == "2026-01-01T00:01:01.000000000Z hello from 1 in attempt 1\n"
    assert read("rank=1&limitBytes=5") == "hello"
    assert read("sinceTime=2026-01-01T00:01:01Z").splitlines() == ["[node 1] hello from 1 in attempt 1"]
    assert read("attempt=7") == "" and "(BadRequest)" in read("tailLines=1000000000") + read("previous=true")


def test_history_commands_work_as_on_one_machine(site: Site) -> None:
    code, out, _ = site.ask("history", "logs", "mine", "-n", HERE, "--all-attempts", "--rank", "1")
    assert code == exits.OK and out.splitlines() == [
        "[node-1 attempt 0 node] hello from 1 in attempt 0",
        "[node-1 attempt 1 node] hello from 1 in attempt 1",
    ]
    assert "name: again" in site.ask("history", "rerun", "mine", "-n", HERE, "--name", "again", "--dry-run")[1]
    data = json.loads(site.ask("history", "get", "mine", "-n", HERE, "--uid", AGAIN.uid[:36], "-o", "json")[1])
    assert data["uid"] == AGAIN.uid and data["trainjob"]["metadata"]["name"] == "mine"
    assert site.ask("history", "get", "none", "-n", HERE)[0] == exits.NOT_FOUND


def test_a_job_that_is_deleted_now_has_a_record(site: Site) -> None:
    job = {**make_trainjob(suspend=True), "apiVersion": "trainer.kubeflow.org/v1alpha1"}
    job["metadata"] = {"name": "brief", "namespace": HERE}
    site.cluster.apply(json.dumps(job))
    site.cluster.kubectl("delete", "trainjob", "brief", "-n", HERE)
    while not (found := site.read(f"/namespaces/{HERE}/jobrecords?fieldSelector=record.name%3Dbrief")["items"]):
        continue
    assert found[0]["record"]["state"] == "Deleted"
    _, _, err = site.ask("logs", "brief", "-n", HERE)
    assert "no logs of it were kept" in err


def test_records_are_read_only(site: Site) -> None:
    done = site.kubectl("delete", "jobrecord", MINE.uid, "-n", HERE)
    assert "(MethodNotAllowed)" in done.stderr
    path = f"/apis/{GROUP}/namespaces/{HERE}/jobrecords?watch=true"
    assert "cannot be watched" in site.kubectl("get", "--raw", path).stderr


FORGED = ("X-Remote-User: admin", "X-Remote-Group: system:masters")
PATH = f"/apis/{GROUP}/namespaces/{HERE}/jobrecords"


def test_only_api_servers_are_believed_who_they_speak_for(site: Site, tmp_path: Path) -> None:
    keys = site.cluster.front_proxy
    proxy = (keys.folder / "proxy.crt", keys.folder / "proxy.key")
    assert send(site, PATH, *FORGED).startswith("HTTP/1.1 401")
    assert send(site, PATH, "Authorization: Bearer " + site.cluster.token).startswith("HTTP/1.1 401")
    of_another_name = keys.issue_client("somebody", ("system:masters",), tmp_path, "other")
    assert send(site, PATH, *FORGED, keys=of_another_name).startswith("HTTP/1.1 401")
    of_another_ca = site.cluster.issue(FRONT_PROXY, (), tmp_path)
    with suppress(ssl.SSLError, ConnectionError):
        assert send(site, PATH, *FORGED, keys=of_another_ca) == "", "the handshake fails"
    assert send(site, PATH, *FORGED, keys=proxy).startswith("HTTP/1.1 200"), "as the real one"
    assert send(site, PATH, keys=proxy).startswith("HTTP/1.1 401"), "it speaks for nobody"
    # Each line is one group, whatever is in it.
    joined = "X-Remote-Group: a, system:masters"
    assert send(site, PATH, "X-Remote-User: x", joined, keys=proxy).startswith("HTTP/1.1 403")


def send(site: Site, path: str, *headers: str, keys: tuple[Path, Path] | None = None) -> str:
    """Straight to the port of the operator."""
    with connect(site, keys) as sock:
        sock.sendall(build_get(path, *headers))
        return read_answer(sock).decode()


def build_get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


@contextmanager
def connect(site: Site, keys: tuple[Path, Path] | None) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if keys is not None:
        context.load_cert_chain(*keys)
    with socket.create_connection(("127.0.0.1", site.port), 20) as plain, context.wrap_socket(plain) as sock:
        yield sock


def test_a_new_ca_of_api_servers_is_believed_at_once_and_an_old_one_no_more(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "next"
    make_front_proxy(folder)
    keys = (folder / "proxy.crt", folder / "proxy.key")
    before = site.cluster.front_proxy.folder / "ca.crt"

    def trust(*cas: Path) -> None:
        data = {"requestheader-client-ca-file": "".join(ca.read_text() for ca in cas)}
        patch = json.dumps({"data": data})
        site.cluster.kubectl("patch", "configmap", AUTHENTICATION, "-n", "kube-system", "--type=merge", "-p", patch)

    def is_believed() -> bool:
        with suppress(ssl.SSLError, ConnectionError):
            return send(site, PATH, *FORGED, keys=keys).startswith("HTTP/1.1 200")
        return False

    assert not is_believed()
    trust(before, folder / "ca.crt")
    while not is_believed():
        continue
    with connect(site, keys) as kept:
        kept.sendall(build_get(PATH, *FORGED))
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        trust(before)
        while is_believed():
            continue
        with suppress(ssl.SSLError, ConnectionError):
            kept.sendall(build_get(PATH, *FORGED))
            assert not kept.recv(65536).startswith(b"HTTP/1.1 200"), "nor on a connection that exists"
    assert site.read(f"/namespaces/{HERE}/jobrecords")["items"], "the API server goes on"


def test_the_ca_of_the_operator_is_put_back(site: Site) -> None:
    read = ("get", "apiservice", NAME, "-o", "jsonpath={.spec.caBundle}")
    before = site.cluster.kubectl(*read)
    for wrong in ('{"spec": {"caBundle": null, "insecureSkipTLSVerify": true}}', '{"spec": {"caBundle": "bm9uZQ=="}}'):
        site.kubectl("patch", "apiservice", NAME, "--type=merge", "-p", wrong)
        while site.cluster.kubectl(*read) != before:
            continue
    assert "insecureSkipTLSVerify" not in site.cluster.kubectl("get", "apiservice", NAME, "-o", "yaml")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in NEEDED:
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    with KubeCluster(Parts(unlimited=True), toolbox=toolbox, manifests=json.dumps(build_manifests())) as cluster:
        for namespace in (OWN, HERE, THERE):
            cluster.kubectl("create", "namespace", namespace)
        yield cluster


def test_a_cluster_without_records_and_an_operator_that_is_away_are_said(small: KubeCluster, tmp_path: Path) -> None:
    site = Site(small, cast(Run, None), 0, tmp_path)
    code, _, err = site.ask("history", "list", "-A")
    assert code == exits.FAILED and "this cluster serves no records of jobs: it needs an operator with --history" in err
    code, _, err = site.ask("logs", "mine", "-n", HERE)
    assert code == exits.NOT_FOUND and 'there is no TrainJob "mine" in namespace' in err
    plant(tmp_path / "archive", [MINE])
    with serving(small, OWN, tmp_path, [HERE], "--companion") as served:
        assert "mine" in site.ask("history", "list", "-A")[1]
        code, _, err = site.ask("get", "mine", "-n", HERE)
        assert code == exits.NOT_FOUND and "its record is kept: `trainmaster history get mine" in err
        served.run.process.terminate()
        served.run.wait()
        small.kubectl("wait", "--for=condition=Available=false", f"apiservice/{NAME}", "--timeout=60s")
        code, _, err = site.ask("history", "list", "-A")
        assert code == exits.FAILED and "the operator that has the records of this cluster does not answer" in err
        _, out, _ = site.ask("doctor")
        assert "the API server does not reach them" in out and f"`kubectl delete apiservice {NAME}" in out
        # What docs/operator.md warns of: Kubernetes ends a namespace only if it knows all of its kinds.
        small.kubectl("delete", "namespace", THERE, "--wait=false")
        condition = "condition=NamespaceDeletionDiscoveryFailure"
        small.kubectl("wait", f"--for={condition}", f"namespace/{THERE}", "--timeout=60s")
        with served.again():
            small.kubectl("wait", "--for=delete", f"namespace/{THERE}", "--timeout=60s")
