"""Progress with real programs: `trainmaster.report` over a socket, and Pods that report to a real server."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import command
from tests.support.training import Lab, training
from trainmaster import progress
from trainmaster.progress import Payload, StatusConnection

# Torch needs half a minute to start where other tests run beside it.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

PATIENCE = 20.0
Object = dict[str, Any]


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, Payload, tuple[str, int]]]
    codes: list[int]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, self.headers["Authorization"], body, self.client_address))
        self.send_response(self.codes.pop(0) if self.codes else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Server], str]]:
    handler = type("Handler", (Server,), {"seen": [], "codes": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        yield handler, f"http://127.0.0.1:{listener.server_address[1]}/status"
        listener.shutdown()
        thread.join()


def send_twice(sender: Callable[[Payload, float], bool], token: Path) -> list[bool]:
    first = sender({"trainerStatus": {}}, PATIENCE)
    token.write_text("renewed\n")
    return [first, sender({"trainerStatus": {}}, PATIENCE)]


def test_one_connection_serves_all_reports_and_the_token_is_read_each_time(
    server: tuple[type[Server], str], tmp_path: Path
) -> None:
    handler, url = server
    token = tmp_path / "token"
    token.write_text("first\n")
    sender = StatusConnection(url, "", str(token))
    assert send_twice(sender, token) == [True, True]
    assert [(path, given) for path, given, _, _ in handler.seen] == [
        ("/status", "Bearer first"),
        ("/status", "Bearer renewed"),
    ]
    assert len({address for *_, address in handler.seen}) == 1
    sender._close()


@pytest.mark.parametrize(
    ("code", "done"), [(200, True), (403, True), (409, True), (422, True), (429, False), (503, False)]
)
def test_only_a_busy_server_is_asked_again(
    server: tuple[type[Server], str], tmp_path: Path, code: int, done: bool
) -> None:
    handler, url = server
    handler.codes = [code]
    (tmp_path / "token").write_text("t")
    sender = StatusConnection(url, "", str(tmp_path / "token"))
    assert sender({"trainerStatus": {}}, PATIENCE) is done
    sender._close()


def test_a_program_that_ends_at_once_has_said_its_last_word(server: tuple[type[Server], str], tmp_path: Path) -> None:
    """And its forked children keep silent."""
    handler, url = server
    (tmp_path / "token").write_text("t")
    program = """
import os, sys
sys.path.insert(0, sys.argv[1])
import trainmaster
for step in range(1, 11):
    trainmaster.report(step=step, total=10, loss=1 / step)
if os.fork() == 0:
    os.environ["RANK"] = "1"
    trainmaster.report(step=99, total=100)
    sys.exit()
os.wait()
"""
    root = str(Path(progress.__file__).parent.parent)
    environ = {**os.environ, progress.URL: url, progress.TOKEN: str(tmp_path / "token"), "RANK": "0"}
    subprocess.run([sys.executable, "-c", program, root], env=environ, check=True, timeout=60)
    last = handler.seen[-1][2]["trainerStatus"]
    assert last["progressPercentage"] == 100
    assert {"name": "current_step", "value": "99"} not in last["metrics"]
    assert len(handler.seen) <= 2


@pytest.fixture(scope="module", params=["auto", "plain"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """At the level that the server chooses, and at the one that every machine has."""
    folder = tmp_path_factory.mktemp(f"progress-{request.param}")
    with training(folder / "home", TRAINMASTER_NODE_ISOLATION=request.param) as lab:
        yield lab


def submit(lab: Lab, name: str, program: str) -> None:
    trainer = {"numNodes": 2, "image": "python:3.11", "command": ["python", "-c", program]}
    lab.submit({"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}})


def read_report(lab: Lab, name: str) -> Object:
    report: Object = lab.get(name).get("status", {}).get("trainerStatus", {})
    return report


E_010 = """
import json, os, ssl, urllib.request
if os.environ["PET_NODE_RANK"] == "0":
    report = {"progressPercentage": 42, "estimatedRemainingSeconds": 120, "lastUpdatedTime": "2100-01-31T12:00:00Z",
              "metrics": [{"name": "loss", "value": "0.123"}, {"name": "accuracy", "value": "0.95"}]}
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        headers = {"Authorization": "Bearer " + file.read()}
    url, body = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], json.dumps({"trainerStatus": report}).encode()
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context, timeout=30) as answer:
        print(answer.status, flush=True)
    other = url.replace("/e-010/", "/another/")
    try:
        urllib.request.urlopen(urllib.request.Request(other, body, headers), context=context, timeout=30)
    except urllib.error.HTTPError as error:
        print("another job:", error.code, flush=True)
"""


def test_e_010_a_pod_posts_to_the_injected_url_with_the_injected_ca_and_token(lab: Lab) -> None:
    submit(lab, "e-010", E_010)
    assert lab.wait_for_end("e-010")["type"] == "Complete"
    assert read_report(lab, "e-010") == {
        "progressPercentage": 42,
        "estimatedRemainingSeconds": 120,
        "metrics": [{"name": "loss", "value": "0.123"}, {"name": "accuracy", "value": "0.95"}],
        "lastUpdatedTime": "2100-01-31T12:00:00Z",
    }
    text = lab.read_logs("e-010")
    assert "200\n" in text and "another job: 403\n" in text
    lab.remove("e-010")


PLAIN = """
import trainmaster
for step in range(1, 21):
    trainmaster.report(step=step, total=20, loss=1 / step)
"""


def test_a_plain_script_reports_with_one_call(lab: Lab) -> None:
    submit(lab, "plain", PLAIN)
    assert lab.wait_for_end("plain")["type"] == "Complete"
    report = read_report(lab, "plain")
    assert (report["progressPercentage"], report["estimatedRemainingSeconds"]) == (100, 0)
    assert {"name": "loss", "value": "0.05"} in report["metrics"]
    lab.remove("plain")


def find_last_point(lab: Lab, name: str, progress: int) -> Object | None:
    """Of the series in the job's record, when it is that far."""
    words = command("history", "get", name, "--home", str(lab.home), "-o", "json")
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60)
    points: list[Object] = json.loads(shown.stdout)["progress"] if shown.returncode == 0 else []
    return points[-1] if points and points[-1]["progressPercentage"] == progress else None


def test_a_hugging_face_trainer_reports_without_a_change(tmp_path_factory: pytest.TempPathFactory) -> None:
    with training(tmp_path_factory.mktemp("progress-hf") / "home") as lab:
        lab.start("huggingface")
        ended = lab.wait_for_end("huggingface")
        assert ended["type"] == "Complete", lab.describe("huggingface")
        report = read_report(lab, "huggingface")
        assert (report["progressPercentage"], report["estimatedRemainingSeconds"]) == (100, 0)
        names = [entry["name"] for entry in report["metrics"]]
        assert "train_loss" in names and "learning_rate" in names
        last = lab.wait_until(lambda: find_last_point(lab, "huggingface", 100), "the last report is in the record")
        assert last["metrics"]["train_loss"] > 0
