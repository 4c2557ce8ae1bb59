"""The page of results, and how `make bench` runs, resumes and refuses."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from bench._report import Row
from tools import benchrun
from tools.bench_page import STOPPED, Conditions, Outcome, build_page, build_summary, list_rows

pytestmark = pytest.mark.unit

CONDITIONS = Conditions("0123456789abcdef", False, "2026-11-16", "2 cores of a CPU", 0.12)
KEPT = Row("create p99", "at most 50 ms", "9.04 ms", "22 ms with the official client", True)
MISSED = Row("rate", "at least 10x", "4.65x", "1,168/s | kube", False)
OUTCOMES = {"rest": Outcome((KEPT,), 0, 40.0), "http_vs_kube": Outcome((MISSED, KEPT), 1, 80.0)}


def test_the_page_has_one_table_with_a_line_for_each_promise() -> None:
    lines = build_page(CONDITIONS, OUTCOMES).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows[2:] == [
        "| create p99 | at most 50 ms | 9.04 ms | kept | 22 ms with the official client | `rest` |",
        "| rate | at least 10x | 4.65x | **missed** | 1,168/s \\| kube | `http_vs_kube` |",
        "| create p99 | at most 50 ms | 9.04 ms | kept | 22 ms with the official client | `http_vs_kube` |",
    ]
    head = "Written by `make bench` from one run: 2026-11-16, commit `0123456789ab`, 2 minutes."
    assert lines[2:5] == [
        head,
        "Machine: 2 cores of a CPU; load before the run 0.1.",
        "**2 of 3 promises kept.**",
    ]


def test_a_figure_without_a_promise_is_neither_kept_nor_missed() -> None:
    seen = Row("first rows of 64 ranks", "", "180 ms", "load 0.3", True)
    outcomes = {"dashboard": Outcome((KEPT, seen), 0, 40.0)}
    page = build_page(CONDITIONS, outcomes)
    assert "**1 of 1 promises kept.**" in page
    assert "| first rows of 64 ranks | none | 180 ms |  | load 0.3 | `dashboard` |" in page
    assert build_summary(CONDITIONS, outcomes) == "1 of 1 promises kept, at load 0.1"


def test_the_page_tells_of_load_and_uncommitted_changes() -> None:
    page = build_page(replace(CONDITIONS, load=3.0, is_changed=True), OUTCOMES)
    assert "commit `0123456789ab`, with uncommitted changes" in page
    assert "The machine was not idle" in page
    assert "The machine was not idle" not in build_page(CONDITIONS, OUTCOMES)


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        (Outcome((KEPT,), 0, 1.0), None),
        (Outcome((MISSED,), 1, 1.0), None),
        (Outcome((KEPT,), 1, 1.0), "ended with 1"),
        (Outcome((MISSED,), 0, 1.0), "ended with 0"),
        (Outcome((), 0, 1.0), "ended with 0 and reported nothing"),
        (Outcome((KEPT,), -9, 1.0), "ended with -9"),
        (Outcome((KEPT,), STOPPED, 300.0), "stopped after 300 s"),
    ],
)
def test_a_bench_that_did_not_run_to_its_end_has_a_row_of_its_own(outcome: Outcome, seen: str | None) -> None:
    rows = list_rows("rest", outcome)
    assert rows[: len(outcome.rows)] == list(outcome.rows)
    more = rows[len(outcome.rows) :]
    assert more == ([Row("`bench/rest.py`", "runs to its end", seen, "", False)] if seen else [])


def test_the_summary_names_what_was_missed() -> None:
    assert build_summary(CONDITIONS, OUTCOMES).splitlines() == [
        "2 of 3 promises kept, at load 0.1",
        "MISSED rate: 4.65x (promised: at least 10x)",
    ]


def test_results_are_kept_and_resumed_on_the_same_commit_only(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    with pytest.raises(benchrun.Refused, match="no interrupted run"):
        benchrun.read_state(path, CONDITIONS)
    benchrun.write_state(path, CONDITIONS, OUTCOMES)
    assert benchrun.read_state(path, replace(CONDITIONS, load=0.4)) == (CONDITIONS, OUTCOMES)
    with pytest.raises(benchrun.Refused, match="of commit 0123456789ab, and this is ffff"):
        benchrun.read_state(path, replace(CONDITIONS, commit="ffff"))
    with pytest.raises(benchrun.Refused, match="uncommitted changes"):
        benchrun.read_state(path, replace(CONDITIONS, is_changed=True))


def test_a_busy_machine_and_uncommitted_changes_are_refused() -> None:
    benchrun.check_conditions(CONDITIONS, anyway=False)
    for conditions in (replace(CONDITIONS, load=0.51), replace(CONDITIONS, is_changed=True)):
        with pytest.raises(benchrun.Refused, match="--anyway"):
            benchrun.check_conditions(conditions, anyway=False)
        benchrun.check_conditions(conditions, anyway=True)


def is_running(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_bench_that_crashes_or_hangs_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench").mkdir()
    report = (benchrun.ROOT / "bench" / "_report.py").read_text()
    programs = {
        "__init__": "",
        "_report": report,
        "crash": """
            import pathlib, subprocess
            pathlib.Path("left").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
            raise SystemExit(3)
        """,
        "hang": "import time; time.sleep(600)",
        "good": """
            from bench._report import Report
            report = Report()
            report.check("b", 1.0, at_most=2)
            raise SystemExit(report.exit_code)
        """,
    }
    for name, text in programs.items():
        (tmp_path / "bench" / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(benchrun, "ROOT", tmp_path)
    outcomes: dict[str, Outcome] = {}
    state = tmp_path / "state" / "bench.json"
    benchrun.run_all(("crash", "good"), CONDITIONS, outcomes, state)
    monkeypatch.setattr(benchrun, "LIMIT", 0.5)
    benchrun.run_all(("crash", "good", "hang"), CONDITIONS, outcomes, state)
    assert [(name, found.exit_code, [row.what for row in found.rows]) for name, found in outcomes.items()] == [
        ("crash", 3, []),
        ("good", 0, ["b"]),
        ("hang", STOPPED, []),
    ]
    assert benchrun.read_state(state, CONDITIONS)[1] == outcomes
    assert "MISSED `bench/hang.py`: stopped after" in capfd.readouterr().out
    assert not is_running(int((tmp_path / "left").read_text())), "a process of the bench that crashed"
