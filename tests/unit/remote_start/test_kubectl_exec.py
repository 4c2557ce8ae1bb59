"""The stand-in for kubectl in the launcher of an MPIJob: its arguments, what it waits for, and how it is delivered."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from trainmaster.remote_start import kubectl_exec
from trainmaster.remote_start.kubectl_exec import (
    ExecCall,
    KubectlError,
    PodApi,
    TryAgainError,
    deliver,
    find_problem,
    main,
    open_when_running,
    parse_arguments,
    read_end,
)

pytestmark = pytest.mark.unit

CALL = ExecCall("w", ["true"])


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("exec w -- /bin/sh -c x", ExecCall("w", ["/bin/sh", "-c", "x"])),
        ("exec w --container main -- x", ExecCall("w", ["x"], container="main")),
        ("exec -n team -i pod/w -c=main -- x -- -i", ExecCall("w", ["x", "--", "-i"], "main", "team", stdin=True)),
    ],
)
def test_the_arguments_are_those_of_kubectl_exec(line: str, want: ExecCall) -> None:
    assert parse_arguments(line.split()) == want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("", "this stand-in for kubectl has only exec"),
        ("get pods", "this stand-in for kubectl has only exec"),
        ("exec w", "exec needs one Pod, and a command after --"),
        ("exec w --", "exec needs one Pod, and a command after --"),
        ("exec a b -- x", "exec needs one Pod, and a command after --"),
        ("exec w -c", "-c needs a value"),
        ("exec -t w -- x", "this stand-in for kubectl has no option -t"),
    ],
)
def test_wrong_arguments_are_named_with_the_usage(line: str, want: str) -> None:
    with pytest.raises(KubectlError) as refused:
        parse_arguments(line.split())
    assert str(refused.value).startswith(want) and "usage: kubectl exec POD" in str(refused.value)


def make_pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [] if state is None else [{"name": "side", "state": {"running": {}}}, {"name": "main", "state": state}]
    spec = {"containers": [{"name": "main"}, {"name": "side"}]}
    status = {"phase": phase, "containerStatuses": statuses, **status}
    return {"metadata": {"uid": "u"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (None, "Pod w does not exist"),
        (make_pod("Running", {"running": {}}), ""),
        (
            make_pod("Pending", {"waiting": {"reason": "ErrImage", "message": "no rule"}}),
            "Pod w is Pending (ErrImage: no rule)",
        ),
        (
            make_pod("Pending", conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1"}]),
            "Pod w is Pending (Unschedulable: 0/1)",
        ),
        (make_pod("Running", {"terminated": {}}), "Pod w is Running"),
        (make_pod("Failed", {"terminated": {}}, reason="Evicted"), "Pod w has failed (Evicted)"),
    ],
)
def test_a_pod_that_may_run_later_is_waited_for_with_its_reason(pod: dict[str, Any] | None, want: str) -> None:
    assert find_problem(pod, CALL) == want


def test_a_pod_that_never_will_is_an_error_at_once() -> None:
    with pytest.raises(KubectlError, match="a worker must run until the launcher ends"):
        find_problem(make_pod("Succeeded", {"terminated": {}}), CALL)
    with pytest.raises(KubectlError, match="Pod w has no container gpu; it has main, side"):
        find_problem(make_pod("Pending"), ExecCall("w", ["true"], container="gpu"))


def test_the_end_is_an_exit_code_or_an_error() -> None:
    assert read_end(b'{"status": "Success"}') == 0
    causes = b'{"causes": [{"reason": "ExitCode", "message": "7"}]}'
    assert read_end(b'{"status": "Failure", "details": ' + causes + b"}") == 7
    with pytest.raises(KubectlError, match="no such program"):
        read_end(b'{"status": "Failure", "message": "no such program"}')
    with pytest.raises(KubectlError, match="the connection ended before the program did"):
        read_end(b"")


def test_it_delivers_itself_as_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(str(tmp_path))
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    assert main(()) == 0, "once more, when the Pod is restarted"
    assert os.listdir(tmp_path) == ["kubectl"] and (tmp_path / "kubectl").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "kubectl").read_text().startswith("#!/usr/bin/env python3\n")


def test_without_access_to_the_api_server_it_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(("exec", "w", "--", "true")) == 1
    assert "automountServiceAccountToken must not be false" in capsys.readouterr().err


def test_it_runs_with_the_python_of_any_image() -> None:
    ast.parse(Path(kubectl_exec.__file__).read_text(), feature_version=(3, 8))


class ScriptedApi(PodApi):
    """Answers in turn with these Pods or errors; the last one stays."""

    def __init__(self, *answers: dict[str, Any] | Exception | None) -> None:
        self._answers = list(answers)
        self.opened: list[tuple[str, ExecCall]] = []

    def read(self, name: str) -> str:
        return f"the {name}"

    def find_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def open_exec(self, namespace: str, call: ExecCall) -> Any:
        self.opened.append((namespace, call))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def test_a_worker_that_starts_later_is_waited_for_in_silence(
    pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    api = ScriptedApi(None, TryAgainError("busy"), make_pod("Pending"), make_pod("Running", {"running": {}}))
    open_when_running(api, CALL)
    assert api.opened == [("the namespace", CALL)] and len(pauses) == 3
    assert capsys.readouterr().err == ""


def test_a_long_wait_is_explained_and_ends(pauses: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KubectlError, match=r"gave up after 60 s: Pod w is Pending \(ErrImage: no rule\)"):
        open_when_running(
            ScriptedApi(make_pod("Pending", {"waiting": {"reason": "ErrImage", "message": "no rule"}})), CALL, 60
        )
    assert 60 <= sum(pauses) < 62
    assert capsys.readouterr().err == "kubectl exec: waiting: Pod w is Pending (ErrImage: no rule)\n", "once"


def test_what_is_forbidden_is_not_tried_again(pauses: list[float]) -> None:
    with pytest.raises(KubectlError, match="forbidden"):
        open_when_running(ScriptedApi(KubectlError("pods is forbidden")), CALL)
    assert pauses == []
