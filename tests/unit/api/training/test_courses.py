"""`status.repeated`: failures of a job compared with one another, and programs that cannot even begin."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.training.courses import (
    FailureCourse,
    build_note,
    explain_end,
    follow_failure,
    is_hopeless,
    name_error,
    read_course,
)

pytestmark = pytest.mark.unit

TRACE = """Traceback (most recent call last):
  File "/workspace/code/train.py", line 30, in <module>
    main()
  File "/workspace/code/train.py", line {line}, in step
    loss.backward()
{error}"""


def fail(error: str = "ValueError: no data in shard 3", line: int = 12, **fields: Any) -> Object:
    return {"attempt": 0, "job": "a-node-0", "exitCode": 1, "message": TRACE.format(error=error, line=line), **fields}


class History:
    """A TrainJob whose attempts fail one after the other."""

    def __init__(self) -> None:
        self.trainjob: Object = {"metadata": {"name": "a"}, "status": {}}
        self.attempt = -1

    def fail(self, failure: Object | None, step: float | None = None, checkpoint: str = "") -> FailureCourse:
        self.attempt += 1
        if step is not None:
            self.trainjob["status"]["pace"] = {"furthest": str(step)}
        course = follow_failure(self.trainjob, self.attempt, 0, failure, checkpoint)
        note = {name: value for name, value in build_note(course)["repeated"].items() if value is not None}
        self.trainjob["status"]["repeated"] = note
        assert read_course(self.trainjob) == course
        assert follow_failure(self.trainjob, self.attempt, 0, failure, checkpoint) == course, "asked twice"
        return course


def test_the_same_error_three_times_running_is_repeated() -> None:
    job = History()
    assert [job.fail(fail(f"ValueError: shard {n}")).is_repeated for n in range(3)] == [False, False, True]


def test_another_place_or_another_exception_begins_the_count_anew() -> None:
    job = History()
    found = [fail(), fail(), fail(line=13), fail(line=13), fail("KeyError: 3", line=13), fail()]
    assert [job.fail(one).count for one in found] == [1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        fail(signal=9, exitCode=137),
        fail(reason="OOMKilled"),
        fail(reason="Evicted"),
        fail("ConnectionResetError: [Errno 104] Connection reset by peer"),
        {"attempt": 0, "job": "a-node-0", "exitCode": 1, "message": "no traceback"},
        None,
    ],
)
def test_an_attempt_that_ended_otherwise_neither_counts_nor_begins_the_count_anew(other: Object | None) -> None:
    job = History()
    assert name_error(other) == ""
    assert [job.fail(one).count for one in (fail(), fail(), other, other, fail())] == [1, 2, 2, 2, 3]


def test_a_new_step_in_between_begins_the_count_anew() -> None:
    job = History()
    counts = [job.fail(fail(), step).count for step in (None, None, 10, 10, 9, 11)]
    assert counts == [1, 2, 1, 2, 3, 1]


def test_a_new_complete_checkpoint_in_between_begins_the_count_anew() -> None:
    job = History()
    found = [job.fail(fail(), checkpoint=name) for name in ("", "t1 step-1", "t1 step-1", "t1 step-1", "t2 step-1", "")]
    assert [course.count for course in found] == [1, 1, 2, 3, 1, 2]
    assert [course.progressed for course in found] == [False, True, False, False, True, False]


def test_progress_in_an_attempt_that_was_killed_counts_too() -> None:
    job = History()
    assert [job.fail(one, step).count for one, step in ((fail(), 1), (fail(), 1), (None, 5), (fail(), 5))] == [
        1,
        2,
        0,
        1,
    ]


def test_a_restart_by_a_person_begins_the_count_anew() -> None:
    job = History()
    job.fail(fail())
    job.fail(fail())
    assert follow_failure(job.trainjob, 2, 2, fail()).count == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("  File \"/workspace/code/train.py\", line 3\n    if x\n        ^\nSyntaxError: expected ':'", True),
        (
            'Traceback (most recent call last):\n  File "/workspace/code/train.py", line 1, in <module>\n'
            "    import numpyy\nModuleNotFoundError: No module named 'numpyy'",
            True,
        ),
        (
            'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
            '  File "<frozen runpy>", line 88, in _run_code\n  File "/w/train.py", line 1, in <module>\n'
            '    import model\n  File "/w/model.py", line 9, in <module>\n    from x import y\n'
            "ImportError: cannot import name 'y' from 'x' (/w/x.py)",
            True,
        ),
        (
            'Traceback (most recent call last):\n  File "/w/train.py", line 1, in <module>\n    import model\n'
            '  File "/w/model.py", line 9\n    def f(:\n          ^\nSyntaxError: invalid syntax',
            True,
        ),
        (
            'Traceback (most recent call last):\n  File "/w/train.py", line 9, in <module>\n    main()\n'
            "  File \"/w/train.py\", line 5, in main\n    import plugin\nModuleNotFoundError: No module named 'plugin'",
            False,
        ),
        (
            'Traceback (most recent call last):\n  File "/w/train.py", line 9, in <module>\n    read()\n'
            '  File "/w/train.py", line 5, in read\n    ast.literal_eval(text)\n'
            '  File "/usr/lib/python3.11/ast.py", line 64, in literal_eval\n    node = parse(text)\n'
            '  File "<unknown>", line 1\n    1 +\n      ^\nSyntaxError: invalid syntax',
            False,
        ),
        (TRACE.format(error="ValueError: no data", line=12), False),
        ("ImportError: said by nobody knows whom", False),
    ],
)
def test_a_program_that_cannot_begin_is_hopeless(message: str, expected: bool) -> None:
    assert is_hopeless({"job": "a", "exitCode": 1, "message": message}) is expected


def test_the_sentence_says_what_repeated() -> None:
    assert explain_end(FailureCourse(2, 3, "ValueError at train.py:12 in step"), fail()) == (
        "the same error has ended 3 attempts in a row, without a new step or checkpoint in between, so the job is not"
        " restarted again: ValueError: no data in shard 3, at train.py:12 in step"
    )
