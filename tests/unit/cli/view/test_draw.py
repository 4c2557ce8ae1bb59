"""The panel: what stands where, at every size; and lines of programs that would disturb it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.unit.cli.view.objects import STARTED, make_condition, make_pod, make_trainjob
from trainmaster.cli.terminal import measure
from trainmaster.cli.view.draw import draw, draw_curve, show_span, to_text
from trainmaster.cli.view.lines import strip_controls, tidy
from trainmaster.cli.view.model import Model

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 0, 1, 23, tzinfo=UTC)


def make_model(ranks: int = 2) -> Model:
    seen = Model("train")
    for index in range(ranks):
        seen.see_pod(make_pod(index, running=STARTED))
    for loss in (0.9, 0.7, 0.4, 0.1):
        metrics = [{"name": "loss", "value": str(loss)}, {"name": "lr", "value": "0.001"}]
        report = {"progressPercentage": 42, "estimatedRemainingSeconds": 112, "metrics": metrics}
        seen.see_trainjob(make_trainjob(ranks, trainerStatus={**report, "lastUpdatedTime": str(loss)}))
    return seen


def test_the_panel_of_a_running_job() -> None:
    lines = to_text(draw(make_model().screen, NOW, 80, 20, {0: "step 4", 1: "step\x1b[31m 3\r"}, "Ctrl-C"))
    assert lines == [
        "─" * 79,
        "train  Running · 2 nodes · torch-distributed                             1m 23s",
        "━" * 24 + "─" * 34 + "  42 %   1m 52s left",
        "loss 0.1 █▆▄▁   lr 0.001 ▄▄▄▄",
        "RANK   STATE     TIME     LAST LINE",
        "0      running   1m 18s   step 4",
        "1      running   1m 18s   step 3",
        "Ctrl-C",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 30])
@pytest.mark.parametrize("ranks", [0, 1, 50])
def test_the_panel_fits_every_terminal(width: int, height: int, ranks: int) -> None:
    seen = make_model(ranks)
    seen.screen.message, seen.screen.reason = "word " * 60 + "x" * 300, "Queued"
    lines = to_text(draw(seen.screen, NOW, width, height, {0: "wörter 你好 " * 40}, "a footer " * 20))
    assert 1 <= len(lines) <= height
    assert all(measure(line) < width for line in lines)


def test_of_many_ranks_those_that_need_a_look_are_shown_and_the_rest_is_counted() -> None:
    seen = make_model(50)
    seen.see_pod(make_pod(33, "Failed", terminated={"exitCode": 7}))
    lines = to_text(draw(seen.screen, NOW, 80, 12))
    assert any(line.startswith("33 ") and "exit code 7" in line for line in lines)
    assert lines[-1] == "and 44 more: 44 running"


def test_waiting_says_why_and_until_when() -> None:
    seen = Model("train")
    until = "2026-01-01T00:01:30Z"
    seen.see_trainjob(make_trainjob(waiting={"reason": "RestartBackOff", "message": "rank 1 failed", "until": until}))
    lines = to_text(draw(seen.screen, NOW, 80, 12))
    assert lines[2] == "RestartBackOff: rank 1 failed (again in 7s)"


def test_a_job_that_is_over_stands_still() -> None:
    seen = make_model()
    seen.see_trainjob(make_trainjob(conditions=[make_condition("Failed", "x", "a long text")]))
    lines = to_text(draw(seen.screen, NOW, 80, 12))
    assert lines[1].endswith("1m 30s")
    assert not any("a long text" in line for line in lines), "the end of the run tells it in order"


def test_with_several_processes_per_node_nodes_are_shown_and_called_so() -> None:
    seen = make_model()
    seen.see_trainjob(make_trainjob(processes=4))
    lines = to_text(draw(seen.screen, NOW, 80, 12))
    assert "· 2 nodes · 4 per node ·" in lines[1]
    assert any(line.startswith("NODE ") for line in lines)


def test_a_wide_terminal_shows_the_pods() -> None:
    lines = to_text(draw(make_model().screen, NOW, 200, 12, {0: "step 4"}))
    assert "train-node-0-0-0   step 4" in lines[5]


def test_curves_are_as_wide_as_allowed_and_keep_their_ends() -> None:
    assert draw_curve([1, 2, 3, 4, 5, 6, 7, 8], 8) == "▁▂▃▄▅▆▇█"
    assert draw_curve([5.0], 8) == "▄"
    long = draw_curve([float(number) for number in range(1000, 0, -1)], 24)
    assert (len(long), long[0], long[-1]) == (24, "█", "▁")


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0.9, "0s"), (59, "59s"), (60, "1m"), (83, "1m 23s"), (3600, "1h"), (90061, "1d 1h"), (-5, "0s")],
)
def test_spans_are_short(seconds: float, want: str) -> None:
    assert show_span(seconds) == want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param("\x1b[2J\x1b[Hgone", "gone", id="cursor movements"),
        pytest.param("\r 10%|#\r 20%|##", " 20%|##", id="a bar drawn over itself"),
        pytest.param("\x1b]0;title\x07text", "text", id="the title of the window"),
        pytest.param("a\tb", "a       b", id="tabs"),
        pytest.param("\x07\x00bell", "bell", id="controls"),
        pytest.param("broken \x1b[", "broken [", id="half an escape"),
    ],
)
def test_lines_of_programs_move_no_cursor(line: str, want: str) -> None:
    assert strip_controls(line) == want
    assert tidy(line, colours=True) == want


def test_colours_of_programs_end_with_their_line_and_only_where_they_may_be() -> None:
    assert tidy("\x1b[31mred", colours=True) == "\x1b[31mred\x1b[0m"
    assert tidy("\x1b[31mred", colours=False) == "red"
