"""`trainmaster.report`: cheap, never in the way, and the last word always arrives."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from trainmaster import progress
from trainmaster.progress import Payload, ProgressReporter, ReportedState, build_reporter, format_value, read_rank

pytestmark = pytest.mark.unit

PATIENCE = 20.0


def build(*notes: tuple[float, float | None, float | None, dict[str, Any]]) -> Payload:
    """What is sent after these (moment, step, total, metrics)."""
    state = ReportedState()
    for moment, step, total, metrics in notes:
        state.note(step, total, metrics, moment)
    status: Payload = state.build_payload()["trainerStatus"]
    assert status.pop("lastUpdatedTime").endswith("Z")
    return status


def test_percentage_and_time_left_come_from_the_speed_since_the_first_report() -> None:
    status = build((100.0, 10, 200, {}), (130.0, 40, None, {"loss": 0.5}))
    assert status == {
        "progressPercentage": 20,
        "estimatedRemainingSeconds": 160,
        "metrics": [
            {"name": "loss", "value": "0.5"},
            {"name": "current_step", "value": "40"},
            {"name": "total_steps", "value": "200"},
        ],
    }


@pytest.mark.parametrize(
    ("notes", "want"),
    [
        pytest.param([(0.0, 1, 10, {})], (10, None), id="one report has no speed"),
        pytest.param([(0.0, 1, 10, {}), (9.0, 10, 10, {})], (100, 0), id="the end"),
        pytest.param([(0.0, 5, 10, {}), (1.0, 12, 10, {})], (100, 0), id="more than all of it"),
        pytest.param([(0.0, 1, None, {}), (9.0, 10, None, {})], (None, None), id="no total"),
        pytest.param([(0.0, 1, 0, {})], (None, None), id="of nothing"),
        pytest.param([(0.0, 90, 100, {}), (9.0, 2, 100, {}), (11.0, 4, 100, {})], (4, 96), id="it begins again"),
    ],
)
def test_what_cannot_be_known_is_left_out(notes: list[Any], want: tuple[Any, Any]) -> None:
    status = build(*notes)
    assert (status.get("progressPercentage"), status.get("estimatedRemainingSeconds")) == want


class Tensor:
    """As torch's: it has a graph behind it, and its value is asked for with float()."""

    def __init__(self, value: float, graph: object = "graph") -> None:
        self.value = value
        self.graph = graph

    def detach(self) -> Tensor:
        return Tensor(self.value, None)

    def __float__(self) -> float:
        return self.value


def test_metrics_stay_until_they_are_said_again_and_tensors_lose_their_graph() -> None:
    state = ReportedState()
    state.note(None, None, {"loss": Tensor(0.25), "accuracy": 0.5}, 0.0)
    state.note(None, None, {"loss": Tensor(0.125), "nothing": None}, 1.0)
    assert state.metrics["loss"].graph is None
    shown = {entry["name"]: entry["value"] for entry in state.build_payload()["trainerStatus"]["metrics"]}
    assert shown == {"loss": "0.125", "accuracy": "0.5"}


def test_no_more_metrics_are_sent_than_the_server_takes() -> None:
    status = build((0.0, 1, 10, {f"m{number}": number for number in range(300)}))
    assert len(status["metrics"]) == 256
    assert status["metrics"][-1] == {"name": "total_steps", "value": "10"}


@pytest.mark.parametrize(
    ("value", "want"),
    [(0.1234567, "0.123457"), (3.0, "3"), (True, "True"), (float("nan"), "nan"), (float("inf"), "inf"), (1e30, "1e+30"),
     ("warm-up", "warm-up"), ("x" * 100, "x" * 64), ([1, 2], ""), (None, ""), (10**80, "1" + "0" * 63)],
)  # fmt: skip
def test_values_are_short_texts(value: Any, want: str) -> None:
    assert format_value(value) == want


@pytest.mark.parametrize(
    ("environ", "want"),
    [({}, 0), ({"RANK": "3", "PET_NODE_RANK": "0"}, 3), ({"RANK": "0", "PET_NODE_RANK": "1"}, 0),
     ({"JOB_COMPLETION_INDEX": "2"}, 2), ({"OMPI_COMM_WORLD_RANK": "1"}, 1), ({"RANK": "?"}, 0)],
)  # fmt: skip
def test_the_rank_is_the_launchers_else_the_pods(environ: dict[str, str], want: int) -> None:
    assert read_rank(environ) == want


def test_nobody_reports_outside_of_a_job_or_from_another_rank() -> None:
    job = {progress.URL: "https://example/status", progress.TOKEN: "/token"}
    assert build_reporter({}) is None
    assert build_reporter({progress.URL: job[progress.URL]}) is None
    assert build_reporter({**job, "RANK": "1"}) is None
    assert build_reporter({**job, "RANK": "0"}) is not None


class Line:
    """Takes reports in place of the network; time stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[Payload] = []
        self.arrived = threading.Semaphore(0)
        self.answers: list[bool | Exception] = []

    def __call__(self, payload: Payload, patience: float) -> bool:
        self.sent.append(payload["trainerStatus"])
        answer = self.answers.pop(0) if self.answers else True
        self.arrived.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self) -> Payload:
        assert self.arrived.acquire(timeout=PATIENCE)
        return self.sent[-1]


def test_the_first_report_goes_at_once_the_others_wait_and_the_last_one_goes_at_the_end() -> None:
    line = Line()
    reporter = ProgressReporter(line, clock=lambda: line.now, seconds=5.0)
    reporter.note(1, 100, {})
    assert line.wait()["progressPercentage"] == 1
    for step in range(2, 50):
        reporter.note(step, 100, {"loss": 1 / step})
    assert len(line.sent) == 1, "five seconds are not over"
    reporter.finish()
    assert [status["progressPercentage"] for status in line.sent] == [1, 49]
    reporter.note(50, 100, {})
    reporter.finish()
    assert len(line.sent) == 2, "after the end nothing is said"


def test_what_was_said_is_not_repeated_at_the_end() -> None:
    line = Line()
    reporter = ProgressReporter(line, clock=lambda: line.now)
    reporter.note(1, 1, {})
    line.wait()
    reporter.finish()
    assert len(line.sent) == 1


@pytest.mark.parametrize("answer", [False, OSError("no route")], ids=["busy", "gone"])
def test_what_did_not_arrive_is_said_again(answer: bool | Exception) -> None:
    line = Line()
    line.answers = [answer]
    reporter = ProgressReporter(line, clock=lambda: line.now)
    reporter.note(7, 10, {})
    line.wait()
    reporter.finish()
    assert [status["progressPercentage"] for status in line.sent] == [70, 70]


def test_a_call_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> ProgressReporter | None:
        raise RuntimeError("out of threads")

    monkeypatch.setattr(progress, "_find_reporter", fail)
    progress.report(step=1, total=2, loss=object())
    monkeypatch.undo()
    ProgressReporter(Line()).finish()
