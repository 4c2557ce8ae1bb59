"""What torchrun prints about a failed worker is one line for people, and nothing of the program is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.unit.shim.output.test_cause import LAUNCHER, STOPPED, WORKER, deep, mixed
from trainmaster.jobs.logs.contract import ATTEMPT, Entry, Line, LogMark
from trainmaster.jobs.logs.folding import fold_entries

pytestmark = pytest.mark.unit

HINT = "(`trainmaster logs --raw` shows its whole report)"
FAILED = [WORKER.format(1), *LAUNCHER]
TOLD = f"torchrun: local rank 0 ended with exit code 1 {HINT}"


def fold(entries: list[Entry], tail: int | None = None) -> list[Entry]:
    async def stream() -> AsyncGenerator[Entry, None]:
        for entry in entries:
            yield entry

    async def main() -> list[Entry]:
        return [entry async for entry in fold_entries(stream(), tail)]

    return asyncio.run(main())


def make_lines(texts: list[str], rank: int = 0, pod: str = "p") -> list[Entry]:
    return [Line(0, "node", rank, "node", "", text.encode(), pod=f"{pod}{rank}") for text in texts]


def read_texts(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries]


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        pytest.param([*deep(2), *FAILED], [*deep(2), TOLD], id="a failure"),
        pytest.param([*deep(9), *FAILED, "bye"], [*deep(9), TOLD, "bye"], id="a failure, and then more"),
        pytest.param(
            ["step 1", *STOPPED, "saved"],
            ["step 1", f"torchrun: was stopped with SIGTERM {HINT}", "saved"],
            id="stopped",
        ),
        pytest.param([WORKER.format(1), "again"], [TOLD, "again"], id="torchrun starts its workers again"),
        pytest.param(LAUNCHER[4:], [TOLD], id="only the end"),
        pytest.param([*LAUNCHER[:5], "OSError: no port"], [*LAUNCHER[:5], "OSError: no port"], id="its own error"),
        pytest.param(LAUNCHER[:4], LAUNCHER[:4], id="cut off"),
        pytest.param([*deep(0), *deep(0)], [*deep(0), *deep(0)], id="two tracebacks of the program"),
        pytest.param(["torch 2.9", "=====", "  File none"], ["torch 2.9", "=====", "  File none"], id="no launcher"),
    ],
)
def test_only_the_report_of_torchrun_is_folded(texts: list[str], want: list[str]) -> None:
    assert read_texts(fold(make_lines(texts))) == want


def test_ranks_are_told_apart_and_marks_stay() -> None:
    mark = LogMark(ATTEMPT, 1, "attempt 1")
    first, second = make_lines(["a", *FAILED]), make_lines(["b", *STOPPED], rank=1)
    entries = [entry for pair in zip(first, [*second, *make_lines(["c"] * 99, rank=2)], strict=False) for entry in pair]
    found = fold([mark, *entries])
    assert found[0] == mark
    assert [entry.text for entry in found if isinstance(entry, Line) and entry.rank == 0] == ["a", TOLD]
    assert next(entry.text for entry in found if isinstance(entry, Line) and entry.rank == 1) == "b"


def test_a_worker_that_still_prints_is_not_folded_with_torchrun() -> None:
    texts = mixed(FAILED[1:9], [f"step {number} of 9" for number in range(8)])
    found = read_texts(fold(make_lines([*texts, *FAILED[9:]])))
    assert [text for text in found if text.startswith("step")] == [f"step {number} of 9" for number in range(8)]
    assert not any("torchrun" in text for text in found if text != TOLD)


def test_the_last_lines_are_counted_after_folding() -> None:
    lines = [*make_lines(["1", "2", "3", *FAILED]), *make_lines(["4", "5", "6"], rank=1)]
    assert read_texts(fold(lines, tail=2)) == ["3", TOLD, "5", "6"]
