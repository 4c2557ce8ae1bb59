"""Tables, colours and output forms: what a terminal, a narrow one and a pipe get."""

from __future__ import annotations

import argparse
import io
import json

import pytest

from trainmaster.api.resources import NODES, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.output import build_table, name_object, print_objects
from trainmaster.cli.servers.connection import explain
from trainmaster.client.http import Unreachable
from trainmaster.client.kubeconfig import ClusterConfig

pytestmark = pytest.mark.unit

HEADER = ("NAME", "STATE", "MESSAGE")
ROWS = [("first-job", "Failed", "rank 3 ended with exit code 1: " + "x" * 80), ("b", "Complete", "-")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make(out: io.StringIO | None = None, **environ: str) -> CommandContext:
    return CommandContext(environ, out or io.StringIO(), io.StringIO())


def test_in_a_pipe_nothing_is_cut_or_coloured() -> None:
    lines = build_table(make(), HEADER, ROWS, styles={"STATE": lambda _: terminal.BAD})
    assert lines[1].endswith("x" * 80)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [200, 80, 40, 24, 12])
def test_no_line_of_a_table_is_wider_than_the_terminal_and_the_first_column_is_whole(width: int) -> None:
    lines = build_table(make(Terminal(), COLUMNS=str(width)), HEADER, ROWS)
    assert all(len(line) <= width for line in lines)
    assert lines[1].startswith("first-job")


def test_a_shortened_cell_ends_with_an_ellipsis_and_columns_stay_aligned() -> None:
    header, first, second = build_table(make(Terminal(), COLUMNS="50"), HEADER, ROWS)
    assert first.endswith("…")
    assert header.index("MESSAGE") == first.index("rank") == second.index("-")


def test_the_last_column_can_have_several_lines_on_a_terminal() -> None:
    rows = [
        ("a", "Failed", "FileNotFoundError: no such file: '/data/a.csv', at train.py:4 in load"),
        ("b", "-", "x" * 199),
    ]
    header, first, second = build_table(make(Terminal(), COLUMNS="50"), HEADER, rows, most_lines=3)
    at = header.index("MESSAGE")
    assert [line[at:] for line in first.splitlines()] == [
        "FileNotFoundError: no such file:",
        "'/data/a.csv', at train.py:4 in",
        "load",
    ]
    assert second.count("\n") == 2 and second.endswith("…") and all(len(line) <= 50 for line in second.splitlines())
    assert (
        build_table(make(Terminal(), COLUMNS="50"), HEADER, [("a", "b", "x " * 20)], most_lines=3)[1].count("\n") == 1
    )
    assert build_table(make(), HEADER, rows, most_lines=3)[1].endswith("in load"), "in a pipe a row is one line"


def test_wide_characters_count_twice() -> None:
    lines = build_table(make(), ("NAME", "X"), [("訓練", "a"), ("abcd", "b")])
    assert lines[1:] == ["訓練   a", "abcd   b"]
    assert terminal.shorten("訓練訓練", 5) == "訓練…"


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"TERM": "xterm"}, True)],
    ids=["terminal", "NO_COLOR", "TERM=dumb", "TERM=xterm"],
)
def test_colours_appear_on_a_terminal_that_wants_them(environ: dict[str, str], coloured: bool) -> None:
    context = make(Terminal(), **environ, COLUMNS="80")
    lines = build_table(context, HEADER, ROWS, styles={"STATE": lambda cell: "bad" if cell == "Failed" else ""})
    assert ("\x1b[31mFailed\x1b[0m" in lines[1]) is coloured
    assert "\x1b" not in lines[0] + lines[2]


def test_control_characters_in_a_message_reach_no_terminal() -> None:
    lines = build_table(make(Terminal()), ("A", "B"), [("a", "one\ntwo\x1b[2Jthree")])
    assert lines[1] == "a   one two [2Jthree"


def test_objects_come_as_a_list_one_bare_or_by_name() -> None:
    job = {"kind": "TrainJob", "metadata": {"name": "a", "managedFields": [{}]}}
    context = make()
    print_objects(context, [(TRAIN_JOBS, job)], "json")
    print_objects(context, [(TRAIN_JOBS, job)], "name")
    assert isinstance(context.out, io.StringIO)
    text, _, rest = context.out.getvalue().rpartition("}\n")
    assert json.loads(text + "}")["items"] == [{"kind": "TrainJob", "metadata": {"name": "a"}}]
    assert rest == "trainjob.trainer.kubeflow.org/a\n"
    assert name_object(NODES, "n") == "node/n"
    single = make()
    print_objects(single, [(TRAIN_JOBS, job)], "json", single=True)
    assert isinstance(single.out, io.StringIO)
    assert json.loads(single.out.getvalue())["kind"] == "TrainJob"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StatusError(403, "Forbidden", "no"), exits.FAILED, "kubectl auth can-i --list"),
        (StatusError(401, "Unauthorized", "Unauthorized"), exits.FAILED, "trainmaster kubeconfig"),
        (StatusError(404, "NotFound", "gone"), exits.NOT_FOUND, "gone"),
        (Unreachable("refused", sent=False), exits.NOT_READY, "trainmaster status"),
        (Unreachable("certificate verify failed", sent=False), exits.NOT_READY, "older server"),
    ],
    ids=["forbidden", "unauthorized", "not found", "no answer", "stale kubeconfig"],
)
def test_a_refusal_names_the_next_command(error: StatusError, code: int, text: str) -> None:
    failure = explain(error, ClusterConfig("https://127.0.0.1:1"), argparse.Namespace(kubeconfig="", context=""))
    assert failure.code == code
    assert text in str(failure)
