"""How an end is recorded: exit codes, signals, and the termination message with the kubelet's limits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from trainmaster.shim.exits import build_exited, read_message
from trainmaster.shim.protocol import ContainerSpec, Exited, Paths

pytestmark = pytest.mark.unit


def make_paths(tmp_path: Path, message: bytes | None = None, log: list[str] | None = None) -> Paths:
    paths = Paths(str(tmp_path))
    os.makedirs(tmp_path / "run")
    os.makedirs(tmp_path / "logs" / "main")
    if message is not None:
        Path(paths.message("main", 0)).write_bytes(message)
    entries = [f"2026-11-15T12:00:00.000000001Z stderr {entry}\n" for entry in log or []]
    Path(paths.log("main", 0)).write_text("".join(entries))
    return paths


def make_spec(*, from_logs: bool = False) -> ContainerSpec:
    return ContainerSpec("main", 0, ("true",), {}, "/", message_from_logs=from_logs)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(0, Exited(0, 1.0), id="success"),
        pytest.param(3 << 8, Exited(3, 1.0), id="an exit code"),
        pytest.param(int(signal.SIGSEGV), Exited(139, 1.0, signal=11), id="a signal is 128 plus its number"),
    ],
)
def test_a_wait_status_is_recorded_as_a_shell_says_it(status: int, want: Exited) -> None:
    assert build_exited(status, 1.0, "", oom_killed=False) == want


def test_the_message_is_the_end_of_its_file(tmp_path: Path) -> None:
    paths = make_paths(tmp_path, b"a" * 10 + b"b" * 4096)
    assert read_message(paths, make_spec(), failed=False) == "b" * 4096


def test_a_message_that_is_not_text_can_still_be_shown(tmp_path: Path) -> None:
    paths = make_paths(tmp_path, b"bad \xff\0 end")
    assert read_message(paths, make_spec(), failed=True) == "bad \ufffd\ufffd end"


@pytest.mark.parametrize("failed", [True, False])
def test_only_a_failure_without_a_message_falls_back_to_the_log(tmp_path: Path, failed: bool) -> None:
    paths = make_paths(tmp_path, b"", ["F Traceback", "P Value", "F Error: no"])
    assert read_message(paths, make_spec(), failed=failed) == ""
    want = "Traceback\nValueError: no\n" if failed else ""
    assert read_message(paths, make_spec(from_logs=True), failed=failed) == want


def test_a_message_in_the_file_goes_before_the_log(tmp_path: Path) -> None:
    paths = make_paths(tmp_path, b"said", ["F log"])
    assert read_message(paths, make_spec(from_logs=True), failed=True) == "said"


def test_of_a_long_log_the_last_lines_and_bytes_are_taken(tmp_path: Path) -> None:
    paths = make_paths(tmp_path / "lines", None, [f"F {number}" for number in range(500)])
    lines = read_message(paths, make_spec(from_logs=True), failed=True).split()
    assert lines == [str(number) for number in range(420, 500)]
    paths = make_paths(tmp_path / "bytes", None, [f"F {number:03} {'x' * 100}" for number in range(500)])
    text = read_message(paths, make_spec(from_logs=True), failed=True)
    assert len(text) == 2048
    assert text.endswith(f"499 {'x' * 100}\n")


def test_a_log_that_is_one_long_line_has_an_end_too(tmp_path: Path) -> None:
    paths = make_paths(tmp_path, None, ["P " + "x" * 16384, "P " + "y" * 16384, "F end"])
    text = read_message(paths, make_spec(from_logs=True), failed=True)
    assert text == "y" * 2044 + "end\n"


def test_the_message_shows_the_error_of_the_program_and_not_of_torchrun(tmp_path: Path) -> None:
    own = [
        "F step 3",
        "F Traceback (most recent call last):",
        'F   File "/workspace/code/a.py", line 1',
        "F ValueError: no",
    ]
    told = "F E1115 17:06:17.128000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) of it"
    epilogue = [
        "F Traceback (most recent call last):",
        *(f'F   File "/opt/torch/distributed/run.py", line {number}, in {"x" * 200}' for number in range(20)),
        "F torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        f"F {'=' * 60}",
        "F Root Cause (first observed failure):",
        f"F {'=' * 60}",
    ]
    paths = make_paths(tmp_path / "one", None, [*own, told, *epilogue])
    text = read_message(paths, make_spec(from_logs=True), failed=True)
    assert text.splitlines() == [line[2:] for line in own]
    paths = make_paths(tmp_path / "two", None, [*own, told])
    assert read_message(paths, make_spec(from_logs=True), failed=True).endswith(f"{told[2:]}\n"), "as the kubelet does"


def test_a_traceback_longer_than_the_message_keeps_its_beginning_the_programs_own_frame_and_its_error(
    tmp_path: Path,
) -> None:
    head, own = "F Traceback (most recent call last):", 'F   File "/workspace/code/train.py", line 4, in load'
    frames = [f'F   File "/env/lib/python3.11/site-packages/x.py", line {number}, in call' for number in range(400)]
    paths = make_paths(tmp_path, None, ["F step 3", head, own, *frames, "F ValueError: no"])
    lines = read_message(paths, make_spec(from_logs=True), failed=True).splitlines()
    assert (lines[:2], lines[3], lines[-1]) == ([head[2:], own[2:]], "  ...", "ValueError: no")


def test_a_part_of_a_line_is_not_joined_with_a_line_of_the_other_stream(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    entries = [("stdout", "P", "half "), ("stderr", "F", "ValueError: no data"), ("stdout", "F", "a line")]
    text = "".join(f"2026-11-15T12:00:00.000000001Z {stream} {tag} {said}\n" for stream, tag, said in entries)
    Path(paths.log("main", 0)).write_text(text)
    found = read_message(paths, make_spec(from_logs=True), failed=True)
    assert found == "half \nValueError: no data\na line\n"


def test_a_program_that_printed_nothing_has_no_last_words(tmp_path: Path) -> None:
    paths = make_paths(tmp_path, None, [])
    assert read_message(paths, make_spec(from_logs=True), failed=True) == ""
