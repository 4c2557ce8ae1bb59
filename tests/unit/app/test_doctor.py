"""What the doctor says about a home and who serves it; what it says about machines is tried in tests/node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import trainmaster
from trainmaster.app import doctor as machine
from trainmaster.app.doctor import MachineFacts, check_kubectl, check_privacy, check_server, check_warm
from trainmaster.app.home.folder import Home, ServerInfo
from trainmaster.app.settings import Settings

pytestmark = pytest.mark.unit


@pytest.fixture
def patient(tmp_path: Path) -> MachineFacts:
    home = Home(tmp_path / "home")
    home.prepare()
    return MachineFacts(home, Settings(), ())


def test_a_server_of_another_version_is_noted_with_what_to_do(patient: MachineFacts) -> None:
    with patient.home.hold(ServerInfo(os.getpid(), "0.0.1", "x", server="https://127.0.0.1:1")):
        (found,) = check_server(patient)
    assert (found.state, found.seen) == ("note", f"version 0.0.1 runs, this command is {trainmaster.__version__}")
    assert "Pods live on" in found.advice
    with patient.home.hold(ServerInfo(os.getpid(), trainmaster.__version__, "x", server="https://127.0.0.1:1")):
        assert [one.state for one in check_server(patient)] == ["ok"]


def test_pods_without_a_server_are_noted(patient: MachineFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_server(patient) == []
    monkeypatch.setattr(machine, "list_live", lambda pods: ["a", "b"])
    (found,) = check_server(patient)
    assert found.seen == "none runs, and 2 Pods of it live on"


def test_a_home_that_others_can_read_is_a_problem(patient: MachineFacts) -> None:
    assert check_privacy(patient) == []
    patient.home.kubeconfig.write_text("secret")
    patient.home.kubeconfig.chmod(0o644)
    (found,) = check_privacy(patient)
    assert found.state == "problem"
    assert found.advice == f"chmod go-rwx {patient.home.kubeconfig}"


def test_a_missing_kubectl_is_no_problem(
    patient: MachineFacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = check_kubectl(patient)
    assert (found.state, found.seen) == ("note", "not installed")


def test_the_running_server_says_what_is_prepared_and_why_not(
    patient: MachineFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"environment": "/env", "namespace": "default", "state": "prepared (torch; 130 MiB)", "is_ready": True}
    waits = {"environment": "/old", "namespace": "team", "state": "not prepared: it has no torch", "is_ready": False}
    monkeypatch.setattr(machine, "ask", lambda *_, **__: {"budget": 512 << 20, "found": [ready, waits]})
    with patient.home.hold(ServerInfo(os.getpid(), trainmaster.__version__, "x", warm="auto")):
        first, *others = check_warm(patient)
    assert "in up to 512 MiB" in first.seen
    assert [(one.state, one.seen) for one in others] == [
        ("ok", "/env in namespace default: prepared (torch; 130 MiB)"),
        ("note", "/old in namespace team: not prepared: it has no torch"),
    ]


def test_a_server_that_does_not_answer_leaves_the_setting(patient: MachineFacts) -> None:
    with patient.home.hold(ServerInfo(os.getpid(), trainmaster.__version__, "x", warm="auto")):
        (found,) = check_warm(patient)
    assert found.seen.startswith("auto (of the running server)")
