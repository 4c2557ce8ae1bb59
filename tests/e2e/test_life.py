"""Start, look, stop, start again: the life of a server as its owner sees it."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import trainmaster
from tests.e2e.shell import Person
from tests.support.server import launch_server, start_server

pytestmark = pytest.mark.e2e


def is_alive(pid: int) -> bool:
    """A process that has ended may stay in the table until whoever inherited it looks."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_up_in_the_background_serves_kubectl_until_down(person: Person) -> None:
    said = person.must("up", "--detach")
    assert f"kubeconfig: {person.home}/kubeconfig" in said
    assert "try: kubectl --kubeconfig" in said
    assert stat.S_IMODE((person.home / "kubeconfig").stat().st_mode) == 0o600
    namespaces = person.kubectl("get", "namespaces", "-o", "name").split()
    assert {"namespace/default", "namespace/kube-system", "namespace/kubeflow-system"} <= set(namespaces)
    status = person.trainmaster("status", "-o", "json")
    assert status.code == 0
    assert status.json["version"] == trainmaster.__version__
    assert status.json["home"] == str(person.home)
    assert status.json["kubeconfig"] == str(person.home / "kubeconfig")
    assert status.json["server"].startswith("https://127.0.0.1:")
    assert (status.json["running"], status.json["ready"]) == (True, True)
    assert is_alive(status.json["pid"])
    refused = person.trainmaster("operator", "install", "--kubeconfig", str(person.home / "kubeconfig"))
    assert refused.code == 1 and "a server of `trainmaster up`, which runs jobs without an operator" in refused.err
    assert "Pods that were running live on" in person.must("down")
    assert person.trainmaster("status").code == 3
    assert not is_alive(status.json["pid"])


def test_objects_port_and_kubeconfig_survive_a_restart(person: Person) -> None:
    person.must("up", "--detach")
    person.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    before = person.trainmaster("status", "-o", "json").json
    kubeconfig = (person.home / "kubeconfig").read_text()
    person.must("down")
    person.must("up", "--detach")
    after = person.trainmaster("status", "-o", "json").json
    assert after["server"] == before["server"]
    assert after["pid"] != before["pid"]
    assert (person.home / "kubeconfig").read_text() == kubeconfig
    assert json.loads(person.kubectl("get", "configmap", "kept", "-o", "json"))["data"] == {"a": "b"}


def test_two_homes_run_side_by_side_and_know_nothing_of_each_other(make_person: Callable[[str], Person]) -> None:
    one, two = make_person("one"), make_person("two")
    one.must("up", "--detach")
    two.must("up", "--detach")
    one.kubectl("create", "namespace", "only-here")
    assert "only-here" not in two.kubectl("get", "namespaces")
    servers = {person.trainmaster("status", "-o", "json").json["server"] for person in (one, two)}
    assert len(servers) == 2
    one.must("down")
    assert two.trainmaster("status").code == 0


@pytest.mark.parametrize("flags", [("up",), ("up", "--detach")], ids=["foreground", "background"])
def test_a_second_up_says_who_runs_the_home(person: Person, flags: tuple[str, ...]) -> None:
    person.must("up", "--detach")
    pid = person.trainmaster("status", "-o", "json").json["pid"]
    answer = person.trainmaster(*flags)
    assert answer.code == 5
    assert f"process {pid} (trainmaster {trainmaster.__version__}) already runs the home {person.home}" in answer.err
    assert person.trainmaster("status").code == 0


def test_after_sigkill_everything_acknowledged_is_there_and_nothing_needs_cleaning(person: Person) -> None:
    person.must("up", "--detach")
    person.kubectl("create", "namespace", "acknowledged")
    os.kill(person.trainmaster("status", "-o", "json").json["pid"], signal.SIGKILL)
    assert (person.home / "server.json").exists()
    answer = person.trainmaster("status")
    while answer.code != 3:  # the kernel needs a moment to end the process
        answer = person.trainmaster("status")
    assert "no server runs" in person.must("down")
    person.must("up", "--detach")
    assert "acknowledged" in person.kubectl("get", "namespaces")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_stops_it_tidily_and_says_that_pods_live_on(tmp_path: Path, number: signal.Signals) -> None:
    server = launch_server(tmp_path / "home")
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    assert "stopped; Pods that were running live on" in server.log
    assert not (tmp_path / "home" / "server.json").exists()


def test_a_taken_port_is_replaced_with_a_note_and_a_new_kubeconfig(tmp_path: Path) -> None:
    with start_server(tmp_path / "one") as one:
        port = one.url.rpartition(":")[2]
    with start_server(tmp_path / "two", "--port", port), start_server(tmp_path / "one") as again:
        assert again.url.rpartition(":")[2] != port
        assert f"port {port} of the last start is taken" in again.log
        assert again.url in again.kubeconfig.read_text()


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_with_advice(person: Person, tmp_path: Path) -> None:
    with start_server(tmp_path / "other") as other:
        answer = person.trainmaster("up", "--detach", "--port", other.url.rpartition(":")[2])
    assert answer.code == 1
    assert "choose others with --address and --port" in answer.err
    assert person.trainmaster("status").code == 3


def test_wrong_settings_are_told_before_anything_is_started(person: Person) -> None:
    person.home.mkdir()
    (person.home / "config.toml").write_text("[server]\nprot = 1\n")
    for flags in (("up",), ("up", "--detach"), ("config",)):
        answer = person.trainmaster(*flags)
        assert answer.code == 2
        assert "there is no setting server.prot; did you mean server.port?" in answer.err
    assert [path.name for path in person.home.iterdir()] == ["config.toml"]


def test_a_damaged_store_is_one_sentence_and_not_a_traceback(person: Person) -> None:
    person.must("up", "--detach")
    person.must("down")
    for path in (person.home / "store").glob("store.db*"):
        path.write_bytes(b"this is no database" * 1000)
    answer = person.trainmaster("up", "--detach")
    assert answer.code == 1
    assert "store.db" in answer.err
    assert "Traceback" not in answer.err


def test_a_home_that_cannot_be_used_says_what_to_do(person: Person) -> None:
    person.home.write_text("a file")
    answer = person.trainmaster("up", "--detach")
    assert answer.code == 1
    assert "choose another with --home" in answer.err


def test_a_wrong_failpoint_is_refused(person: Person) -> None:
    answer = person.trainmaster("up", "--detach", environ={"TRAINMASTER_FAILPOINTS": "nonsense"})
    assert answer.code == 1
    assert "TRAINMASTER_FAILPOINTS: failpoint 'nonsense'" in answer.err


def test_down_with_stop_jobs_suspends_them_and_ends_their_pods(person: Person) -> None:
    person.must("up", "--detach")
    person.train("sleeper", "sleep 600")
    assert "suspended 1 jobs" in person.must("down", "--stop-jobs")
    person.must("up", "--detach")
    assert json.loads(person.kubectl("get", "trainjob", "sleeper", "-o", "json"))["spec"]["suspend"] is True
    assert [pod for pod in person.pods("sleeper") if pod["status"]["phase"] == "Running"] == []


def test_pods_live_on_over_down_and_are_taken_over_by_the_next_up(person: Person) -> None:
    person.must("up", "--detach")
    person.train("short", "while [ ! -e go ]; do touch alive; sleep 0.1; done")
    [before] = person.pods("short")
    work = person.home / "pods" / before["metadata"]["uid"] / "work"
    go, alive = work / "go", work / "alive"
    assert "live on" in person.must("down")
    alive.unlink(missing_ok=True)
    person.must("up", "--detach")
    assert alive.exists(), "the process went on without a server"
    [after] = person.pods("short")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    go.touch()
    person.kubectl("wait", "--for=condition=Complete", "trainjob/short", "--timeout=60s")
