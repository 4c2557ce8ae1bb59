"""Every home that an earlier version wrote opens with this one, and everything is there.

The homes are in `data/`, one per version, made by `tools/record_home.py`, which says what is in them. As root, with
walls between tenants; as an ordinary user at level plain, where tenants' jobs have no wall and wait; and two years
later, when certificates are due and every token has expired.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import ssl
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.node.sandboxes import ORDINARY
from tests.support.clients import JSON, Raw
from tests.support.leaks import nothing_left
from tests.support.server import ServerProcess, clean_environ, command, launch_server
from tools.record_home import EXPECTED, NAMESPACES
from trainmaster.api.labels import MIRROR

pytestmark = pytest.mark.e2e

DATA = Path(__file__).parent / "data"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
SAME = (
    TRAINJOBS,
    "/apis/trainer.kubeflow.org/v1alpha1/trainingruntimes",
    "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
    "/api/v1/namespaces",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/api/v1/serviceaccounts",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
)
"""Kinds of which every object is still there, under its uid. Others may be replaced by a start or a migration."""
LIMIT = 90
IMAGE = f"trainmaster:{trainmaster.__version__}"
KEPT = {"TRAINMASTER_HISTORY_KEEP_DAYS": "36500"}
"""The records of deleted jobs are as old as the recording; they would be forgotten after a year."""
LATER = """
from datetime import datetime, timedelta
from trainmaster.kit import clock
ahead = timedelta(days=730)
now, unix = clock.SystemClock.now, clock.SystemClock.unix
clock.SystemClock.now = lambda self: now(self) + ahead
clock.SystemClock.unix = lambda self: unix(self) + ahead.total_seconds()
"""


@dataclass
class Opened:
    """A recorded home, and a server of today that runs on it."""

    home: Path
    expected: JSON
    server: ServerProcess
    verified: bool = True

    def connect(self, token: str = "") -> Raw:
        context = ssl.create_default_context(cafile=str(self.server.ca))
        if not self.verified:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return Raw(self.server.url, context, token or (self.home / "pki" / "owner.token").read_text().strip())

    def ask(self, path: str, token: str = "") -> Any:
        with contextlib.closing(self.connect(token)) as raw:
            return raw.get(path)

    def trainmaster(self, *arguments: str) -> str:
        environ = clean_environ({"TRAINMASTER_HOME": str(self.home)})
        done = subprocess.run(command(*arguments), env=environ, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def find_job(self, namespace: str, name: str) -> JSON:
        found: JSON = self.ask(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}")
        return found

    def wait_for(self, namespace: str, name: str, *kinds: str) -> None:
        """Until the job has one of these conditions."""
        deadline = time.monotonic() + LIMIT
        while not has_condition(job := self.find_job(namespace, name), *kinds):
            assert time.monotonic() < deadline, f"{job.get('status')}\n{self.server.log[-3000:]}"
            time.sleep(0.1)

    def read_outputs(self, namespace: str, name: str) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "got"
            self.trainmaster("outputs", "get", "-n", namespace, name, "--to", str(place))
            return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}

    def mint(self, token: str) -> str:
        """The same token as the recorded server would issue it now; the recorded one lives for a year."""
        secret = (self.home / "pki" / "service-accounts.secret").read_bytes().strip()
        header, claims, signature = (piece.encode() for piece in token.split("."))
        for key in (secret, decode(secret)):
            if hmac.compare_digest(encode(hmac.digest(key, header + b"." + claims, hashlib.sha256)), signature):
                break
        else:
            raise AssertionError("the token is not signed with the secret of its home")
        now = int(time.time())
        renewed = {**json.loads(decode(claims)), "iat": now, "nbf": now, "exp": now + 3600}
        signed = header + b"." + encode(json.dumps(renewed).encode())
        return (signed + b"." + encode(hmac.digest(key, signed, hashlib.sha256))).decode()


def encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def decode(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def has_condition(job: JSON, *kinds: str) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(one["type"] in kinds and one["status"] == "True" for one in conditions)


@contextlib.contextmanager
def opened(
    recording: Path, *, user: int | None = None, environ: dict[str, str] | None = None, verified: bool = True
) -> Iterator[Opened]:
    with tempfile.TemporaryDirectory(prefix="tm-upgrade-") as name, nothing_left(name, user):
        folder = Path(name)
        folder.chmod(0o755)
        # Python's own would need a filter from 3.12 on, which 3.11.2 does not know.
        subprocess.run(["tar", "-xpf", recording, "-C", folder, "--same-owner", "--numeric-owner"], check=True)
        (folder / "home" / "logs").mkdir()
        if user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user, follow_symlinks=False)
        expected = json.loads((folder / EXPECTED).read_text())
        settings = {**KEPT, "HOME": name, **(environ or {})}
        server = launch_server(folder / "home", environ=settings, user=user)
        found = Opened(folder / "home", expected, server, verified)
        try:
            yield found
        finally:
            if verified:
                found.trainmaster("down", "--stop-jobs", "--timeout", "30")
                code = server.process.wait(30)
            else:
                code = server.stop()
        assert code == 0, server.log[-3000:]


def list_recordings() -> list[Path]:
    return sorted(DATA.glob("*.tar.gz"))


recordings = pytest.mark.parametrize("recording", list_recordings(), ids=lambda path: path.name.partition(".")[0])


def test_there_are_recordings() -> None:
    assert DATA / "c96e675.tar.gz" in list_recordings()
    assert [path.name for path in list_recordings() if path.stat().st_size > 1 << 20] == []


@recordings
def test_as_root_everything_is_there_and_goes_on(recording: Path) -> None:
    with opened(recording) as found:
        check_objects(found)
        check_components(found)
        check_writing_back(found)
        check_tenants(found)
        check_what_is_over(found, *NAMESPACES)
        check_claims(found)
        for namespace in ("default", "ann"):
            check_lives(found, namespace)
        found.trainmaster("history", "rerun", "coded", "--name", "coded-again")
        found.wait_for("default", "coded-again", "Complete", "Failed")
        assert has_condition(found.find_job("default", "coded-again"), "Complete")


@recordings
def test_as_an_ordinary_user_at_level_plain_the_owner_goes_on(recording: Path) -> None:
    with opened(recording, user=ORDINARY, environ={"TRAINMASTER_NODE_ISOLATION": "plain"}) as found:
        check_objects(found)
        check_what_is_over(found, "default")
        check_lives(found, "default")
        assert not has_condition(found.find_job("ann", "alive"), "Failed"), "it waits for a server with walls"


@recordings
def test_two_years_later_everything_is_there(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LATER)
    tmp_path.chmod(0o755)
    before = read_expiry(recording)
    with opened(recording, environ={"PYTHONPATH": str(tmp_path)}, verified=False) as found:
        after = json.loads((found.home / "pki" / "pki.json").read_text())
        assert before["server"] < after["server"], "the server's certificate was renewed"
        assert before["ca"] == after["ca"], "whoever trusts the CA still does"
        check_objects(found)
        check_what_is_over(found, "ann")
        for namespace in ("default", "ann"):
            found.wait_for(namespace, "alive", "Complete", "Failed")
            assert has_condition(found.find_job(namespace, "alive"), "Complete")


def read_expiry(recording: Path) -> JSON:
    with tarfile.open(recording) as archive:
        file = archive.extractfile("home/pki/pki.json")
        assert file is not None
        read: JSON = json.load(file)
    return read


def check_objects(found: Opened) -> None:
    """By uid; what users wrote has the same content."""
    for path in SAME:
        there = {item["metadata"]["uid"]: item for item in found.ask(path)["items"]}
        lost = [item["metadata"] for item in found.expected["objects"][path] if item["metadata"]["uid"] not in there]
        assert lost == [], path
        if path.endswith("persistentvolumes"):
            continue  # where they lie has changed with the home
        for item in found.expected["objects"][path]:
            assert there[item["metadata"]["uid"]].get("spec") == item.get("spec"), (path, item["metadata"]["name"])
    for path in ("/api/v1/configmaps", "/api/v1/secrets"):
        there = {item["metadata"]["uid"]: item for item in found.ask(path)["items"]}
        for item in found.expected["objects"][path]:
            if item["metadata"]["name"] == "mine":
                assert there[item["metadata"]["uid"]]["data"] == item["data"]
    for item in found.expected["objects"]["/api/v1/resourcequotas"]:
        meta = item["metadata"]
        quota = found.ask(f"/api/v1/namespaces/{meta['namespace']}/resourcequotas/{meta['name']}")
        assert item["spec"]["hard"].items() <= quota["spec"]["hard"].items(), "a limit was lost"


def check_components(found: Opened) -> None:
    """Each part of the control plane also has a Deployment, which the recorded home has not; all show this version."""
    pods = found.expected["objects"]["/api/v1/pods"]
    names = {pod["metadata"]["name"] for pod in pods if MIRROR in pod["metadata"].get("annotations", {})}
    assert len(names) > 5
    deadline = time.monotonic() + LIMIT
    while names - list_available(found):
        assert time.monotonic() < deadline, list_available(found)
        time.sleep(0.1)
    shown = found.ask("/api/v1/namespaces/kubeflow-system/pods")["items"]
    assert {pod["spec"]["containers"][0]["image"] for pod in shown} == {IMAGE}


def list_available(found: Opened) -> set[str]:
    """Names of the Deployments that are available in this version."""
    items = found.ask("/apis/apps/v1/namespaces/kubeflow-system/deployments")["items"]
    current = [item for item in items if item["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE]
    return {item["metadata"]["name"] for item in current if has_condition(item, "Available")}


def check_writing_back(found: Opened) -> None:
    """Clients read a stored JobSet and write it back with their own spelling of absent: `{}` or nothing."""
    for item in found.expected["objects"]["/apis/jobset.x-k8s.io/v1alpha2/jobsets"]:
        meta = item["metadata"]
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{meta['namespace']}/jobsets/{meta['name']}"
        with contextlib.closing(found.connect()) as raw:
            code, answer = 409, None
            while code == 409:  # its controller wrote in the meantime
                jobset = raw.get(path)
                for job in jobset["spec"]["replicatedJobs"]:
                    template = job["template"]["spec"]["template"]
                    swap_empty(template, "metadata")
                    for container in template["spec"]["containers"]:
                        swap_empty(container, "resources")
                code, answer = raw.call("PUT", path, jobset)
            assert code == 200, (path, answer)


def swap_empty(obj: JSON, field: str) -> None:
    """Removes the field if it is empty; adds an empty one if it is absent."""
    if field not in obj:
        obj[field] = {}
    elif not obj[field]:
        del obj[field]


def check_tenants(found: Opened) -> None:
    listed = {tenant["name"]: tenant for tenant in json.loads(found.trainmaster("tenant", "list", "-o", "json"))}
    for tenant in found.expected["listed"]:
        now = listed[tenant["name"]]
        for key in ("namespace", "state", "unix_user", "created", "disabled"):
            assert now[key] == tenant[key], (tenant["name"], key)
    for tenant in found.expected["tenants"]:
        name, tokens = tenant["tenant"], [found.mint(tenant["token"])]
        if datetime.fromisoformat(tenant["expires"]) > datetime.now(UTC):
            tokens.append(tenant["token"])
        for token in tokens:
            with contextlib.closing(found.connect(token)) as raw:
                assert raw.call("GET", f"/api/v1/namespaces/{name}/pods")[0] == (401 if name == "carl" else 200)
                assert raw.call("GET", "/api/v1/namespaces/default/pods")[0] == (401 if name == "carl" else 403)
    rotated = json.loads(found.trainmaster("tenant", "rotate", "bob", "-o", "json"))["token"]
    assert found.ask("/api/v1/namespaces/bob/pods", rotated)["kind"] == "PodList"
    enabled = json.loads(found.trainmaster("tenant", "enable", "carl", "-o", "json"))["token"]
    assert found.ask("/api/v1/namespaces/carl/pods", enabled)["kind"] == "PodList"


def check_what_is_over(found: Opened, *namespaces: str) -> None:
    """Records, logs and outputs, also of what was deleted; and the status of what was not."""
    for namespace in namespaces:
        listed = json.loads(found.trainmaster("history", "list", "-n", namespace, "-o", "json"))
        records = {record["uid"]: record for record in listed}
        for record in found.expected["history"][namespace]:
            assert records[record["uid"]] == {"kind": "TrainJob", **record}
            where = f"{namespace}/{record['name']}"
            logs = found.trainmaster("history", "logs", "-n", namespace, record["name"], "--all-attempts")
            assert logs == found.expected["logs"][where], where
            if found.verified:  # `outputs` asks the server
                assert found.read_outputs(namespace, record["name"]) == found.expected["outputs"][where], where
    for job in found.expected["objects"][TRAINJOBS]:
        if has_condition(job, "Complete", "Failed"):
            now = found.find_job(job["metadata"]["namespace"], job["metadata"]["name"])
            assert now["status"]["conditions"] == job["status"]["conditions"]


def check_claims(found: Opened) -> None:
    """Pods of all find what Pods before them wrote, tenants' with their own tokens."""
    tokens = {tenant["namespace"]: found.mint(tenant["token"]) for tenant in found.expected["tenants"]}
    # A token that was issued before `rotate` is void.
    tokens["bob"] = json.loads(found.trainmaster("tenant", "rotate", "bob", "-o", "json"))["token"]
    for namespace in NAMESPACES:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        container = {
            "name": "main", "image": "plain",
            "command": ["sh", "-c", "cat /data/deep/file /data/link; echo more > /data/new"],
            "volumeMounts": [{"name": "v", "mountPath": "/data"}],
            "resources": {name: {"cpu": "100m", "memory": "64Mi"} for name in ("requests", "limits")},
        }  # fmt: skip
        spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
        with contextlib.closing(found.connect(tokens.get(namespace, ""))) as raw:
            root = f"/api/v1/namespaces/{namespace}/pods"
            raw.create(root, {"metadata": {"name": "reader"}, "spec": spec})
            wait_for_end(raw, f"{root}/reader")
            assert raw.get(f"{root}/reader/log") == f"claimed in {namespace}\n" * 2


def check_lives(found: Opened, namespace: str) -> None:
    """What ran when the server stopped was disrupted and begins again, without using up a restart; and what was
    suspended goes on when it is told to."""
    found.wait_for(namespace, "alive", "Complete", "Failed")
    assert has_condition(found.find_job(namespace, "paused"), "Suspended")
    found.trainmaster("resume", "-n", namespace, "paused")
    found.wait_for(namespace, "paused", "Complete", "Failed")
    for name in ("alive", "paused"):
        assert has_condition(found.find_job(namespace, name), "Complete"), name
        ranks = 2 if namespace == "default" else 1
        outputs = found.read_outputs(namespace, name)
        assert outputs == {f"lives-{rank}": "life\nlife\n" for rank in range(ranks)}, name


def wait_for_end(raw: Raw, pod: str) -> None:
    deadline = time.monotonic() + LIMIT
    while (status := raw.get(pod)["status"])["phase"] not in ("Succeeded", "Failed"):
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
