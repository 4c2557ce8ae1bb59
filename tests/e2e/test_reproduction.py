"""The report's reproduction in real time, with kubectl: after the TTL nothing is left but the history; and whatever
deletes a job, its logs can still be read.

`TRAINMASTER_REPRODUCTION=exact` runs it with the report's own times (sleep 5, TTL 60), which takes more than a minute.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.shell import PAUSE, Person
from tests.support.environments import find_or_skip
from tools.frameworks import SDK

pytestmark = pytest.mark.e2e

SLEEP, TTL = (5, 60) if os.environ.get("TRAINMASTER_REPRODUCTION") == "exact" else (1, 3)
CHAIN = "trainjobs,jobsets,jobs,pods"
LIMIT = 120


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory, kubectl_path: Path) -> Iterator[Person]:
    """One server for all tests here; each uses names of its own."""
    person = Person(tmp_path_factory.mktemp("reproduction") / "home", kubectl_path)
    person.must("up", "--detach")
    yield person
    person.must("down", "--stop-jobs", "--timeout", "20")


def submit(person: Person, name: str, script: str, namespace: str = "default", **spec: object) -> None:
    trainer = {"numNodes": 1, "command": ["sh", "-c", script]}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer, **spec},
    }
    person.kubectl("create", "-f", "-", stdin=json.dumps(job))


def list_chain(person: Person, name: str, namespace: str = "default") -> list[str]:
    text = person.kubectl("get", CHAIN, "-n", namespace, "-o", "name")
    return [line for line in text.split() if line.partition("/")[2].startswith(name)]


def list_pod_directories(person: Person) -> list[str]:
    """Of Pods; the node keeps a folder of its own there, which begins with a dot."""
    return [path.name for path in (person.home / "pods").iterdir() if not path.name.startswith(".")]


def wait_for_logs(person: Person, name: str, text: str, namespace: str = "default") -> None:
    end = time.monotonic() + LIMIT
    while True:
        answer = person.trainmaster("history", "logs", name, "-n", namespace)
        if answer.code == 0 and text in answer.out:
            return
        assert time.monotonic() < end, f"history logs {name}: {answer.code} {answer.out}{answer.err}"
        time.sleep(PAUSE)


def wait_for_phase(person: Person, name: str, namespace: str, phase: str) -> None:
    for _ in range(300):
        pods = json.loads(person.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        found = [pod["status"]["phase"] for pod in pods if pod["metadata"]["name"].startswith(name)]
        if found == [phase]:
            return
        time.sleep(PAUSE)
    raise AssertionError(f"the Pod of {name} is not {phase}")


def test_after_the_ttl_nothing_is_left_but_the_history(owner: Person) -> None:
    submit(owner, "reported", f"echo it ran; sleep {SLEEP}; exit 0", ttlSecondsAfterFinished=TTL)
    owner.kubectl("wait", "--for=condition=Complete", "trainjob/reported", f"--timeout={LIMIT}s")
    kept = list_chain(owner, "reported")
    if kept:  # a machine this slow may be past the TTL already
        retention = json.loads(owner.kubectl("get", "trainjobs", "-o", "json"))["items"]
        assert [one["status"]["retention"]["ttlSecondsAfterFinished"] for one in retention] in ([TTL], [])
    owner.kubectl("wait", "--for=delete", "trainjob/reported", f"--timeout={TTL + LIMIT}s")
    end = time.monotonic() + LIMIT
    while (left := list_chain(owner, "reported")) or list_pod_directories(owner):
        assert time.monotonic() < end, f"left: {left} {list_pod_directories(owner)}"
        time.sleep(PAUSE)
    wait_for_logs(owner, "reported", "it ran")
    record = owner.trainmaster("history", "get", "reported", "-o", "json").json
    assert (record["state"], record["deletion"]["by"]) == ("Complete", "system:trainmaster")
    assert f"{TTL} s after its end, by TrainJob spec.ttlSecondsAfterFinished" in record["deletion"]["why"]


def test_a_running_job_that_is_deleted_leaves_its_logs(owner: Person) -> None:
    submit(owner, "running", "echo so far; exec sleep 600")
    wait_for_phase(owner, "running", "default", "Running")
    owner.kubectl("delete", "trainjob", "running")
    wait_for_logs(owner, "running", "so far")
    record = owner.trainmaster("history", "get", "running", "-o", "json").json
    assert record["state"] == "Deleted" and record["deletion"]["why"].startswith("kubectl")


def test_a_finished_job_that_is_deleted_leaves_its_logs(owner: Person) -> None:
    submit(owner, "finished", "echo all of it")
    owner.kubectl("wait", "--for=condition=Complete", "trainjob/finished", f"--timeout={LIMIT}s")
    owner.kubectl("delete", "trainjob", "finished")
    wait_for_logs(owner, "finished", "all of it")


def test_jobs_of_a_deleted_namespace_leave_their_logs(owner: Person) -> None:
    owner.kubectl("create", "namespace", "project")
    submit(owner, "over", "echo done there", "project")
    submit(owner, "still", "echo busy there; exec sleep 600", "project")
    owner.kubectl("wait", "-n", "project", "--for=condition=Complete", "trainjob/over", f"--timeout={LIMIT}s")
    wait_for_phase(owner, "still", "project", "Running")
    owner.kubectl("delete", "namespace", "project", f"--timeout={LIMIT}s")
    wait_for_logs(owner, "over", "done there", "project")
    wait_for_logs(owner, "still", "busy there", "project")


def test_what_dashboard_and_alerts_ask_for_is_in_a_scrape_after_the_reproduction(owner: Person) -> None:
    submit(owner, "scraped", "true", ttlSecondsAfterFinished=0)
    owner.kubectl("wait", "--for=delete", "trainjob/scraped", f"--timeout={LIMIT}s")
    submit(owner, "counted", "true", ttlSecondsAfterFinished=3600)
    for name, program in (("good", "true"), ("bad", "false")):
        owner.kubectl("apply", "-f", "-", stdin=json.dumps(make_pytorchjob(name, program)))
    owner.kubectl("wait", "--for=condition=Complete", "trainjob/counted", f"--timeout={LIMIT}s")
    owner.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/good", f"--timeout={LIMIT}s")
    owner.kubectl("wait", "--for=condition=Failed", "pytorchjob/bad", f"--timeout={LIMIT}s")
    series = read_series(owner.kubectl("get", "--raw", "/metrics"))
    for question in list_questions():
        asked = re.findall(r"\b((?:trainmaster|kubeflow_trainer|training_operator)_[a-z0-9_]+)", question)
        assert asked, question
        assert [name for name in asked if name not in series] == [], question
        labels = set(re.findall(r"([a-z_]+)=~?\"", question)) | set(re.findall(r"\{\{\s*([a-z_]+)\s*\}\}", question))
        labels |= {name.strip() for group in re.findall(r"by \(([^)]*)\)", question) for name in group.split(",")}
        known = {label for name in asked for label in series[name]}
        assert labels <= known, f"{question}: {labels - known}"
    scrape = owner.kubectl("get", "--raw", "/metrics")
    runtime = "trainer.kubeflow.org/ClusterTrainingRuntime//plain"
    line = f'trainmaster_trainjobs{{state="Complete",namespace="default",runtime_ref="{runtime}"}} 1'
    assert line in scrape.splitlines()
    assert re.search(r'^trainmaster_trainjob_deletions_total\{reason="ttl"\} [1-9]', scrape, re.MULTILINE)


def make_pytorchjob(name: str, program: str) -> dict[str, object]:
    container = {"name": "pytorch", "image": "python", "command": [program]}
    worker = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    meta = {"name": name, "namespace": "default"}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def read_series(scrape: str) -> dict[str, set[str]]:
    """Metric to its labels, of series that have a value."""
    found: dict[str, set[str]] = {}
    for line in scrape.splitlines():
        match = re.match(r"([a-z0-9_]+)(?:\{(.*)\})? [0-9.e+-]+$", line)
        if match:
            found.setdefault(match[1], set()).update(re.findall(r"([a-z_]+)=\"", match[2] or ""))
    return found


def list_questions() -> list[str]:
    """Every expression of the dashboard, with the legend that it is shown under, and of the alerts."""
    deploy = Path(__file__).parents[2] / "deploy"
    rules = yaml.safe_load((deploy / "prometheus" / "rules.yaml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((deploy / "grafana" / "trainmaster.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [*found, *(f"{target['expr']} {target['legendFormat']}" for target in targets)]


def test_doctor_finds_what_keeps_a_deleted_job_and_nothing_about_a_healthy_one(owner: Person) -> None:
    submit(owner, "healthy", "exec sleep 600")
    owner.kubectl("patch", "trainjob", "healthy", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    wait_for_phase(owner, "healthy", "default", "Running")
    healthy = owner.trainmaster("doctor", "trainjob", "healthy")
    assert (healthy.code, healthy.out) == (0, ""), healthy.out + healthy.err
    owner.kubectl("patch", "trainjob", "healthy", "--type=merge", "-p", '{"metadata":{"finalizers":["a.b/keep"]}}')
    owner.kubectl("delete", "trainjob", "healthy", "--wait=false")
    found = owner.trainmaster("doctor", "trainjob", "healthy", "-o", "json")
    assert found.code == 1
    assert [(one["check"], one["state"]) for one in found.json["findings"]] == [("finalizers", "problem")]
    shown = owner.trainmaster("doctor", "trainjob", "healthy")
    assert "finalizers: trainmaster cleanup --clear-finalizers --yes -n default" in shown.out
    owner.must("cleanup", "--clear-finalizers", "--yes", "-n", "default", "-l", "a=b")
    owner.kubectl("wait", "--for=delete", "trainjob/healthy", f"--timeout={LIMIT}s")
    gone = owner.trainmaster("doctor", "trainjob", "healthy")
    assert gone.code == 7 and "was deleted at" in gone.err and "its record is kept" in gone.err
    assert owner.trainmaster("doctor", "nonsense").code == 2


SDK_PROGRAM = """
import sys, trainmaster
from kubeflow.trainer import CustomTrainer, TrainerClient
from kubeflow.trainer.options import Annotations, Name
from trainmaster.sdk.options import TTLSecondsAfterFinished

def train():
    print("hello from the SDK")

trainer = CustomTrainer(func=train, num_nodes=1)
client = trainmaster.TrainerClient()
assert isinstance(client, TrainerClient)
client.train("plain", trainer=trainer, options=[Name("ours")], active_deadline_seconds=28800,
             ttl_seconds_after_finished=0)
options = [Name("theirs"), Annotations({"a": "b"}), TTLSecondsAfterFinished(3600)]
TrainerClient().train("plain", trainer=trainer, options=options)
"""


def test_deadline_and_ttl_can_be_said_in_python(owner: Person, tmp_path: Path) -> None:
    sdk = find_or_skip(SDK)
    program = tmp_path / "program.py"
    program.write_text(SDK_PROGRAM)
    root = Path(__file__).parents[2]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "KUBECONFIG": str(owner.home / "kubeconfig")}
    done = subprocess.run([sdk / "bin" / "python", program], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    owner.kubectl("wait", "--for=delete", "trainjob/ours", f"--timeout={LIMIT}s")
    wait_for_logs(owner, "ours", "hello from the SDK")
    record = owner.trainmaster("history", "get", "ours", "-o", "json").json
    assert record["trainjob"]["spec"]["activeDeadlineSeconds"] == 28800
    owner.kubectl("wait", "--for=condition=Complete", "trainjob/theirs", f"--timeout={LIMIT}s")
    kept = json.loads(owner.kubectl("get", "trainjob", "theirs", "-o", "json"))
    ours = {"trainmaster.dev/ttl-seconds-after-finished": "3600", "trainmaster.dev/submitter": "owner"}
    assert kept["metadata"]["annotations"] == {"a": "b", **ours}
