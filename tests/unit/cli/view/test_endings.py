"""How a run ends: exit codes and what to do next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.cli.view.objects import make_condition, make_trainjob
from trainmaster.api.training.failing.advice import list_advice
from trainmaster.cli import exits
from trainmaster.cli.view.endings import Address, FollowingEnd, build_ending, choose_code
from trainmaster.cli.view.model import Model

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 0, 2, 0, tzinfo=UTC)
HERE = Address("train", ("-n", "team", "--home", "/h x"))


def make_model(kind: str = "", **status: Any) -> Model:
    seen = Model("train")
    conditions = [make_condition(kind, "Why", "because")] if kind else []
    seen.see_trainjob(make_trainjob(conditions=conditions, **status))
    return seen


def test_a_complete_job_ends_with_0() -> None:
    seen = make_model("Complete")
    assert choose_code(FollowingEnd.OVER, seen.screen) == exits.OK
    assert build_ending(FollowingEnd.OVER, seen, HERE, NOW) == ["train is complete (1m 30s)"]


def test_a_failed_job_ends_with_its_ranks_code_and_says_where_and_how_to_go_on() -> None:
    seen = make_model("Failed", failure={"rank": 1, "exitCode": 7, "message": "kept words"})
    seen.see_line(1, "Traceback (most recent call last):")
    seen.see_line(1, '  File "/workspace/code/train.py", line 12, in step')
    seen.see_line(1, "ValueError: \x1b[31mboom")
    assert choose_code(FollowingEnd.OVER, seen.screen) == 7
    assert build_ending(FollowingEnd.OVER, seen, HERE, NOW) == [
        "train failed (1m 30s): rank 1 ended with exit code 7",
        "  ValueError: boom, at train.py:12 in step",
        "its traceback:",
        "  | Traceback (most recent call last):",
        '  |   File "/workspace/code/train.py", line 12, in step',
        "  | ValueError: boom",
        "to go on:",
        "  trainmaster logs train --rank 1 -n team --home '/h x'   what it printed",
        "  trainmaster describe train -n team --home '/h x'        what happened to it, in order",
    ]


def test_what_ran_out_of_memory_is_told_what_helps() -> None:
    seen = make_model("Failed", failure={"rank": 0, "exitCode": 137, "signal": 9, "reason": "OOMKilled"})
    assert seen.screen.failure is not None
    text = "\n".join(build_ending(FollowingEnd.OVER, seen, HERE, NOW, advice=list_advice(seen.screen.failure)))
    assert "raise it with `run --memory`" in text


def test_under_torchrun_the_place_is_that_of_the_program() -> None:
    seen = make_model("Failed", failure={"rank": 1, "exitCode": 1, "message": "kept words"})
    for line in (
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/workspace/code/train.py", line 12, in step',
        "[rank1]: ValueError: boom",
        "E1115 20:53:47.933000 2 torch/distributed/elastic/agent/api.py:1002] failed (exitcode: 1) local_rank: 0",
        "Traceback (most recent call last):",
        '  File "/env/bin/torchrun", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ):
        seen.see_line(1, line)
    lines = build_ending(FollowingEnd.OVER, seen, HERE, NOW)
    assert lines[1] == "  ValueError: boom, at train.py:12 in step"
    assert not any("torchrun" in line for line in lines)


def test_the_reason_is_the_one_of_the_status_and_the_traceback_as_it_was_printed() -> None:
    message = 'Traceback (most recent call last):\n  ...\n  File "/workspace/code/train.py", line 12\nValueError: boom'
    seen = make_model("Failed", failure={"rank": 1, "exitCode": 1, "message": message})
    for line in ("Traceback (most recent call last):", '  File "/x.py", line 3, in f', "KeyError: 1"):
        seen.see_line(1, line)
    lines = build_ending(FollowingEnd.OVER, seen, HERE, NOW)
    assert lines[1:4] == ["  ValueError: boom, at train.py:12", "its traceback:", f"  | {message.splitlines()[0]}"]
    printed = [*message.splitlines()[:1], '  File "/workspace/code/train.py", line 12', "    x()", "ValueError: boom"]
    for line in printed:
        seen.see_line(1, line)
    assert build_ending(FollowingEnd.OVER, seen, HERE, NOW)[3:7] == [f"  | {line}" for line in printed]


def test_lines_that_nobody_saw_are_taken_from_the_status() -> None:
    seen = make_model("Failed", failure={"rank": 1, "exitCode": 7, "message": "kept words"})
    assert "  | kept words" in build_ending(FollowingEnd.OVER, seen, HERE, NOW)


def test_a_failure_without_a_rank_has_a_code_of_ours() -> None:
    seen = make_model("Failed")
    assert choose_code(FollowingEnd.OVER, seen.screen) == exits.RUN_ENDED
    assert build_ending(FollowingEnd.OVER, seen, HERE, NOW)[0] == "train failed (1m 30s): Why: because"


def test_a_deleted_job_has_a_code_of_ours() -> None:
    seen = make_model()
    seen.see_deleted()
    assert choose_code(FollowingEnd.OVER, seen.screen) == exits.RUN_ENDED
    assert build_ending(FollowingEnd.OVER, seen, HERE, NOW) == [
        "train was deleted before it ended (2m)",
        "  trainmaster history get train -n team --home '/h x'",
    ]


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (FollowingEnd.DETACHED, exits.RUN_DETACHED, ("goes on", "trainmaster watch train -n team")),
        (FollowingEnd.STOPPED, exits.INTERRUPTED, ("is stopped", "trainmaster resume train")),
        (
            FollowingEnd.LOST,
            exits.RUN_LOST,
            ("gone (no lock)", "trainmaster up --detach --home '/h x'", "trainmaster watch"),
        ),
    ],
)
def test_who_leaves_is_told_how_to_come_back(end: FollowingEnd, code: int, words: tuple[str, ...]) -> None:
    seen = make_model()
    text = "\n".join(build_ending(end, seen, HERE, NOW, "no lock"))
    assert choose_code(end, seen.screen) == code
    assert all(word in text for word in words)


def test_codes_of_our_own_are_apart_from_those_of_programs() -> None:
    own = [value for name, value in vars(exits).items() if name.startswith("RUN_")]
    assert len(set(own)) == len(own)
    assert all(240 <= code <= 247 for code in own)
